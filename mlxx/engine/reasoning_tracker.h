#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/engine/request.h"
#include "mlxx/generate/stop_matcher.h"
#include "mlxx/text/stream_decoder.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::engine {

// Follows where an answer reasons, by its text: an answer reasons if it begins
// (white space aside) with Reasoning::begin or the prompt ends inside of it,
// until Reasoning::end. What comes later is the answer, whatever it says.
class ReasoningTracker {
 public:
  enum class Phase { undecided, reasoning, answer };

  // invalid_request for a budget below 0, or one without an end to force.
  ReasoningTracker(
      const Reasoning& reasoning,
      std::shared_ptr<const text::Tokenizer> tokenizer);

  void step(int32_t token);
  // It was decided otherwise that there is no reasoning, or that it began.
  void begin_answer();
  void begin_reasoning();

  Phase phase() const {
    return phase_;
  }
  // Those of the reasoning so far, its marks included.
  int tokens() const {
    return phase_ == Phase::undecided ? 0 : tokens_;
  }
  // The token that the budget leaves no choice about.
  std::optional<int32_t> forced() const;
  // Whether forced() may say something once `unread` more tokens are known.
  bool may_force_after(int unread) const;

  // What begins and ends reasoning, in tokens; empty if it has no such mark.
  const std::vector<int32_t>& begin_tokens() const {
    return begin_tokens_;
  }
  const std::vector<int32_t>& end_tokens() const {
    return end_tokens_;
  }

 private:
  void decide();
  void read(const std::string& piece);

  Reasoning reasoning_;
  std::vector<int32_t> begin_tokens_;
  std::vector<int32_t> end_tokens_;
  text::StreamDecoder decoder_;  // special tokens have their text here
  int32_t vocab_size_;
  Phase phase_;
  std::string opening_;  // the text while undecided
  generate::StopMatcher end_;
  int tokens_ = 0;
  int inside_ = 0;   // of those, after the mark that began it
  int written_ = 0;  // of end_tokens_, once they are forced
};

}  // namespace mlxx::engine
