#pragma once

#include <memory>
#include <mutex>

#include "mlxx/text/grammar.h"

namespace mlxx::engine {

struct ModelText;

// A model's tokens as grammars need them, made by whoever asks first (0.1 to
// 0.5 s) and shared from then on: HTTP threads check grammars, the engine
// follows them.
class GrammarTokensOnce {
 public:
  // Any thread. `text` is the one that this belongs to.
  std::shared_ptr<const text::GrammarTokens> get(const ModelText& text);

 private:
  std::mutex mutex_;
  std::shared_ptr<const text::GrammarTokens> tokens_;
};

}  // namespace mlxx::engine
