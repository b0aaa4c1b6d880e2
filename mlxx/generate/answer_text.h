#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mlxx/generate/stop_matcher.h"
#include "mlxx/text/stream_decoder.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::generate {

// From an answer's tokens to its text: decoding and stop strings together.
// Held back is only an incomplete character and what may become a stop string.
class AnswerText {
 public:
  // Special tokens have no text but those of `visible_tokens`.
  AnswerText(
      std::shared_ptr<const text::Tokenizer> tokenizer,
      const std::vector<std::string>& stops,
      const std::vector<std::string>& visible_tokens = {});

  // The text that became certain with this token.
  std::string step(int32_t token);
  // The rest, once no more tokens come. A stop string may still match here.
  std::string flush();

  // True once a stop string was found, or a token came that a stop string
  // names (special tokens have no text to find it in).
  bool stopped() const {
    return !stop_.empty();
  }
  const std::string& stop() const {
    return stop_;
  }

 private:
  std::string match(const std::string& piece);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::set<int32_t> visible_;  // if empty, the decoder skips special tokens
  text::StreamDecoder decoder_;
  StopMatcher matcher_;
  std::map<int32_t, std::string> stop_tokens_;
  int32_t vocab_size_;
  std::string stop_;
};

}  // namespace mlxx::generate
