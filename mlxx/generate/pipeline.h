#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mlxx/hub/checkpoint.h"
#include "mlxx/models/model.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::generate {

// A model with what turns text into its tokens and back. Shared, immutable.
struct Pipeline {
  std::shared_ptr<const hub::Checkpoint> checkpoint;
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // may be null
  // Union of tokenizer, config, nested text config and generation_config.
  std::set<int32_t> eos_ids;
  int context_length = 0;  // 0 if unknown
  // Seconds spent, for `--json`.
  double tokenizer_seconds = 0;
  double weights_seconds = 0;
};

struct PipelineOptions {
  std::vector<std::string> extra_eos_tokens;  // not_found if no such token
  std::optional<std::string> chat_template;   // replaces the checkpoint's
  models::Progress progress;
};

// Loads the tokenizer on another thread while this one repacks weights.
Pipeline load_pipeline(
    std::shared_ptr<const hub::Checkpoint> checkpoint,
    const PipelineOptions& options = {});

// Prompt text of a raw completion -> ids, with the automatic BOS that the
// tokenizer asks for, never twice.
std::vector<int32_t> encode_raw_prompt(
    const Pipeline& pipeline,
    std::string_view text);

}  // namespace mlxx::generate
