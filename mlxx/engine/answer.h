#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mlxx/engine/model_text.h"
#include "mlxx/engine/reasoning_tracker.h"
#include "mlxx/engine/request.h"
#include "mlxx/engine/runner.h"
#include "mlxx/generate/answer_text.h"
#include "mlxx/text/grammar.h"

namespace mlxx::engine {

// One choice of a request on its way from tokens to events: its text, stop
// strings, reasoning, constraint, and where it ends. Knows nothing of rows.
class Answer {
 public:
  // `max_tokens`: within the context. `vocab_size`: width of the logits.
  Answer(
      const Request& request,
      const ModelText& text,
      int vocab_size,
      int max_tokens,
      int choice);

  // Before the first token, if the request has a constraint. `mask_words`: of
  // the matcher's masks, which need not be as wide as the logits.
  void follow(text::GrammarMatcher matcher, size_t mask_words);

  // Whether the next token's mask cannot be known before the `unread` tokens
  // are, which were chosen for this answer but not taken yet.
  bool waits_for(int unread) const;
  // What the next token may be; empty if that is everything. Errors: internal
  // if nothing is.
  TokenMask next_mask();

  // The next token. The event has the finish if it was the last.
  Event take(AnswerToken token);
  // What is still held back, and the end.
  Event finish(FinishReason reason, std::shared_ptr<const Error> error = {});

  bool finished() const {
    return finished_;
  }
  int choice() const {
    return choice_;
  }
  int max_tokens() const {
    return max_tokens_;
  }
  // Every token that was taken, EOS included.
  const std::vector<int32_t>& tokens() const {
    return tokens_;
  }
  // Its times and cached tokens are for the caller to fill in.
  Usage usage;

 private:
  // How far a constrained answer is from where its grammar holds.
  enum class Grammar { none, undecided, opening, reasoning, active };

  TokenMask cut(TokenMask mask) const;
  TokenMask all_but_eos() const;
  TokenMask only(int32_t token) const;
  TokenMask grammar_mask();
  bool reasoning_may_begin(const TokenMask& grammar) const;
  // Returns whether the token ends the answer.
  bool advance_grammar(int32_t token);
  void end(Event& event, FinishReason reason, std::string stop_sequence);

  int choice_;
  int vocab_size_;
  int max_tokens_;
  bool ignore_eos_;
  std::set<int32_t> eos_ids_;
  generate::AnswerText text_;
  std::optional<ReasoningTracker> reasoning_;
  Grammar grammar_ = Grammar::none;
  std::optional<text::GrammarMatcher> matcher_;
  size_t matcher_words_ = 0;
  size_t opened_ = 0;  // tokens of the mark that begins the reasoning
  std::vector<int32_t> tokens_;
  bool finished_ = false;
};

}  // namespace mlxx::engine
