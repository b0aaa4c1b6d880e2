#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/generate/text_part.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/models/model.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/tokenizer.h"
#include "mlxx/text/tokenizer_cache.h"

namespace mlxx::generate {

// A model with what turns text into its tokens and back. Shared, immutable.
struct Pipeline {
  std::shared_ptr<const hub::Checkpoint> checkpoint;
  std::shared_ptr<const models::Model> model;
  // The same one, where PipelineOptions::trainable asks for it; else null.
  std::shared_ptr<models::Model> trainable_model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // may be null
  // Why chat_template is null although the checkpoint has one.
  std::string chat_template_error;
  // The checkpoint's own template for conversations with tools, where that is
  // another one.
  std::shared_ptr<const text::ChatTemplate> tool_template;
  std::string tool_template_error;
  // Union of tokenizer, config, nested text config and generation_config.
  std::set<int32_t> eos_ids;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;  // the tokenizer's, which closes a text
  // tokenizer_config's add_bos_token, if it says anything.
  std::optional<bool> add_bos;
  int context_length = 0;  // tokens, prompt and answer together; 0 if unknown
  // Seconds spent, for `--json`. The two overlap.
  double tokenizer_seconds = 0;
  double weights_seconds = 0;
};

struct PipelineOptions {
  std::vector<std::string> extra_eos_tokens;  // not_found if no such token
  std::optional<std::string> chat_template;   // replaces the checkpoint's
  int context_length = 0;                     // replaces the config's; 0: keep
  // Absent: as the environment says.
  std::optional<kernels::Selection> kernels;
  // Where the tokenizer is kept in the form that loads fastest.
  std::optional<text::TokenizerCache> tokenizer_cache;
  // What load_text_part() made of the same checkpoint: then neither template
  // nor cache above are looked at.
  std::shared_ptr<const TextPart> text_part;
  models::Progress progress;
  // Weights dense, to be changed (models/load_trainable.h).
  bool trainable = false;
};

// Loads the tokenizer on another thread while this one repacks weights. A
// template of the checkpoint that does not compile is logged and only fails
// encode_chat_prompt, so that raw completion still works.
Pipeline load_pipeline(
    std::shared_ptr<const hub::Checkpoint> checkpoint,
    const PipelineOptions& options = {});

// Prompt text of a raw completion -> ids, with the automatic BOS that the
// tokenizer asks for, never twice.
std::vector<int32_t> encode_raw_prompt(
    const Pipeline& pipeline,
    std::string_view text);

// An OpenAI-style list of messages -> ids, through the chat template and
// without any BOS but the template's own. With
// options.continue_final_message the last message is an assistant's that the
// answer goes on from (--prefill-response). invalid_request, with what to do
// instead, if the model has no chat template.
std::vector<int32_t> encode_chat_prompt(
    const Pipeline& pipeline,
    const OrderedJson& messages,
    const text::RenderOptions& options = {});

}  // namespace mlxx::generate
