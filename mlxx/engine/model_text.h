#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/engine/grammar_tokens.h"
#include "mlxx/generate/sampling.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::engine {

// What turns a model's requests into tokens and its tokens into text.
// Immutable and thread-safe: the threads of the server use it without the
// engine, also before the weights are loaded.
struct ModelText {
  std::string name;        // what requests call it
  std::string model_type;  // "llama"
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // may be null
  std::string chat_template_error;                          // why it is null
  std::shared_ptr<const text::ChatTemplate> tool_template;  // may be null
  std::string tool_template_error;
  // Source of the templates, by which tool and reasoning formats are known.
  std::string chat_template_source;
  std::string tool_template_source;
  std::set<int32_t> eos_ids;
  std::optional<int32_t> bos_id;
  std::optional<bool> add_bos;
  int vocab_size = 0;      // width of the logits
  int context_length = 0;  // tokens, prompt and answer; 0: unknown
  // generation_config.json under the server's flags: what a request that says
  // nothing gets.
  generate::SamplingOptions sampling;
  bool is_embedding_model = false;  // no answers, only vectors
  bool is_reranker = false;
  int64_t created = 0;  // Unix time of the checkpoint
  // grammar->get(*this); one for all copies of this struct.
  std::shared_ptr<GrammarTokensOnce> grammar =
      std::make_shared<GrammarTokensOnce>();
};

// As generate::encode_raw_prompt and encode_chat_prompt; any thread.
std::vector<int32_t> encode_raw(const ModelText& text, std::string_view prompt);
std::vector<int32_t> encode_chat(
    const ModelText& text,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options);
// The rendered prompt as text (/apply-template; whether reasoning is open).
std::string render_chat(
    const ModelText& text,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options);

}  // namespace mlxx::engine
