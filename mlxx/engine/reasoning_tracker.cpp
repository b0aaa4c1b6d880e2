#include "mlxx/engine/reasoning_tracker.h"

#include <string_view>

#include "mlxx/base/error.h"

namespace mlxx::engine {

namespace {

std::vector<int32_t> mark_tokens(
    const text::Tokenizer& tokenizer,
    const std::string& mark) {
  if (mark.empty()) {
    return {};
  }
  if (auto id = tokenizer.token_to_id(mark)) {
    return {*id};
  }
  return tokenizer.encode(mark);
}

std::vector<std::string> one_stop(const std::string& end) {
  return end.empty() ? std::vector<std::string>{} : std::vector{end};
}

}  // namespace

ReasoningTracker::ReasoningTracker(
    const Reasoning& reasoning,
    std::shared_ptr<const text::Tokenizer> tokenizer)
    : reasoning_(reasoning),
      begin_tokens_(mark_tokens(*tokenizer, reasoning.begin)),
      end_tokens_(mark_tokens(*tokenizer, reasoning.end)),
      decoder_(tokenizer, /*skip_special_tokens=*/false),
      vocab_size_(tokenizer->vocab_size()),
      phase_(
          reasoning.open              ? Phase::reasoning
              : begin_tokens_.empty() ? Phase::answer
                                      : Phase::undecided),
      end_(one_stop(reasoning.end)) {
  if (!reasoning.budget) {
    return;
  }
  if (*reasoning.budget < 0) {
    fail(
        ErrorKind::invalid_request,
        "reasoning_budget",
        "must be at least 0, got {}",
        *reasoning.budget);
  }
  if (end_tokens_.empty() && phase_ != Phase::answer) {
    fail(
        ErrorKind::invalid_request,
        "reasoning_budget",
        "the model has no mark that ends its reasoning, so that no budget of "
        "{} tokens can be kept",
        *reasoning.budget);
  }
}

void ReasoningTracker::begin_answer() {
  if (phase_ == Phase::undecided) {
    tokens_ = 0;
  }
  phase_ = Phase::answer;
}

void ReasoningTracker::begin_reasoning() {
  phase_ = Phase::reasoning;
}

void ReasoningTracker::step(int32_t token) {
  if (phase_ == Phase::answer) {
    return;
  }
  ++tokens_;
  if (auto next = forced(); next && *next == token) {
    ++written_;
  }
  if (phase_ == Phase::reasoning) {
    ++inside_;
  }
  // Rows of the output head past the tokenizer's last token have no text.
  if (token < vocab_size_) {
    read(decoder_.step(token));
  }
  if (written_ > 0 && written_ == static_cast<int>(end_tokens_.size())) {
    phase_ = Phase::answer;
  }
}

void ReasoningTracker::read(const std::string& piece) {
  if (phase_ == Phase::undecided) {
    opening_ += piece;
    decide();
    return;
  }
  end_.step(piece);
  if (end_.matched()) {
    phase_ = Phase::answer;
  }
}

void ReasoningTracker::decide() {
  size_t start = opening_.find_first_not_of(" \t\r\n");
  if (start == std::string::npos) {
    return;
  }
  std::string_view text = std::string_view(opening_).substr(start);
  if (text.starts_with(reasoning_.begin)) {
    phase_ = Phase::reasoning;
    read(std::string(text.substr(reasoning_.begin.size())));
  } else if (!std::string_view(reasoning_.begin).starts_with(text)) {
    begin_answer();
  }
}

std::optional<int32_t> ReasoningTracker::forced() const {
  if (phase_ != Phase::reasoning || !reasoning_.budget ||
      inside_ < *reasoning_.budget ||
      written_ >= static_cast<int>(end_tokens_.size())) {
    return std::nullopt;
  }
  return end_tokens_[written_];
}

bool ReasoningTracker::may_force_after(int unread) const {
  if (phase_ == Phase::answer || !reasoning_.budget) {
    return false;
  }
  // Undecided: the next unread token may complete the mark.
  return inside_ + unread >= *reasoning_.budget;
}

}  // namespace mlxx::engine
