#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mlxx/hub/checkpoint.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/special_tokens.h"
#include "mlxx/text/tokenizer.h"
#include "mlxx/text/tokenizer_cache.h"

namespace mlxx::generate {

struct TextOptions {
  std::optional<std::string> chat_template;  // replaces the checkpoint's
  // Where the tokenizer is kept in the form that loads fastest.
  std::optional<text::TokenizerCache> tokenizer_cache;
};

// What a checkpoint's texts give, without its weights. Shared, immutable.
struct TextPart {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // may be null
  // Why chat_template is null although the checkpoint has one.
  std::string chat_template_error;
  std::string chat_template_source;
  // The checkpoint's own template for conversations with tools, where that is
  // another one.
  std::shared_ptr<const text::ChatTemplate> tool_template;
  std::string tool_template_error;
  std::string tool_template_source;
  text::SpecialTokens special;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;  // what closes a text; special.eos
  double seconds = 0;             // it took
};

// On any thread: nothing here computes arrays. A template of the checkpoint
// that does not compile is logged and only fails what needs it; one of the
// options is an error. Others: bad_file.
TextPart load_text_part(
    const hub::Checkpoint& checkpoint,
    const TextOptions& options);

// Union of tokenizer, config, nested text config, generation_config and
// `more`, which are tokens: not_found if there is no such one.
std::set<int32_t> eos_ids_of(
    const TextPart& part,
    const hub::Checkpoint& checkpoint,
    const std::vector<std::string>& more,
    int vocab_size);

}  // namespace mlxx::generate
