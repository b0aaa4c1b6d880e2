#pragma once

#include <span>
#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/engine/request.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::api {

// OpenAI's chat shape: {"token", "bytes", "logprob", "top_logprobs": [...]}.
// Tokens that are no text of their own have U+FFFD in "token" and their exact
// bytes in "bytes".
OrderedJson chat_logprob(
    const engine::AnswerToken& token,
    const text::Tokenizer& tokenizer);

// The shape of the legacy completions, one entry for each token in each list:
// tokens, token_logprobs, top_logprobs, text_offset (characters from the
// beginning of the text of the choice).
class LegacyLogprobs {
 public:
  // `top`: how many alternatives; with 0 the lists of them are null.
  explicit LegacyLogprobs(int top) : top_(top) {}

  // `shown`: whether the token's text is part of the choice's text.
  void add(
      const engine::AnswerToken& token,
      const text::Tokenizer& tokenizer,
      bool shown = true);
  // What was added since the last call; null if nothing was.
  OrderedJson take();

 private:
  int top_;
  size_t characters_ = 0;  // that the tokens so far begin
  std::vector<OrderedJson> tokens_;
  std::vector<OrderedJson> logprobs_;
  std::vector<OrderedJson> alternatives_;
  std::vector<OrderedJson> offsets_;
};

}  // namespace mlxx::api
