#include "mlxx/engine/grammar_tokens.h"

#include <algorithm>
#include <vector>

#include "mlxx/base/error.h"
#include "mlxx/engine/model_text.h"

namespace mlxx::engine {

std::shared_ptr<const text::GrammarTokens> GrammarTokensOnce::get(
    const ModelText& text) {
  const std::lock_guard lock(mutex_);
  if (!tokens_) {
    if (!text.tokenizer) {
      fail(
          ErrorKind::unsupported,
          "tokenizer",
          "the model \"{}\" has no tokenizer",
          text.name);
    }
    const std::vector<int32_t> ends(text.eos_ids.begin(), text.eos_ids.end());
    tokens_ = text::GrammarTokens::make(
        *text.tokenizer,
        std::max(text.vocab_size, text.tokenizer->vocab_size()),
        ends);
  }
  return tokens_;
}

}  // namespace mlxx::engine
