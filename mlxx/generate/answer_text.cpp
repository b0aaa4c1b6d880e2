#include "mlxx/generate/answer_text.h"

namespace mlxx::generate {

namespace {

std::set<int32_t> ids_of(
    const text::Tokenizer& tokenizer,
    const std::vector<std::string>& tokens) {
  std::set<int32_t> ids;
  for (const std::string& token : tokens) {
    auto id = tokenizer.token_to_id(token);
    if (id && tokenizer.is_special(*id)) {
      ids.insert(*id);
    }
  }
  return ids;
}

}  // namespace

AnswerText::AnswerText(
    std::shared_ptr<const text::Tokenizer> tokenizer,
    const std::vector<std::string>& stops,
    const std::vector<std::string>& visible_tokens)
    : tokenizer_(tokenizer),
      visible_(ids_of(*tokenizer, visible_tokens)),
      decoder_(tokenizer, /*skip_special_tokens=*/visible_.empty()),
      matcher_(stops),
      vocab_size_(tokenizer->vocab_size()) {
  for (const std::string& stop : stops) {
    auto id = tokenizer->token_to_id(stop);
    if (id && tokenizer->is_special(*id)) {
      stop_tokens_.emplace(*id, stop);
    }
  }
}

std::string AnswerText::match(const std::string& piece) {
  std::string certain = matcher_.step(piece);
  if (matcher_.matched()) {
    stop_ = matcher_.matched_stop();
  }
  return certain;
}

std::string AnswerText::step(int32_t token) {
  auto found = stop_tokens_.find(token);
  if (found != stop_tokens_.end()) {
    std::string rest = flush();
    if (stop_.empty()) {
      stop_ = found->second;
    }
    return rest;
  }
  // Rows of the output head past the tokenizer's last token have no text.
  if (token >= vocab_size_) {
    return {};
  }
  // The decoder is not to see what it would write out.
  if (!visible_.empty() && !visible_.contains(token) &&
      tokenizer_->is_special(token)) {
    return {};
  }
  return match(decoder_.step(token));
}

std::string AnswerText::flush() {
  if (stopped()) {
    return {};
  }
  std::string rest = match(decoder_.flush());
  if (!stopped()) {
    rest += matcher_.flush();
  }
  return rest;
}

}  // namespace mlxx::generate
