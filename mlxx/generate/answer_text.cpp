#include "mlxx/generate/answer_text.h"

namespace mlxx::generate {

AnswerText::AnswerText(
    std::shared_ptr<const text::Tokenizer> tokenizer,
    const std::vector<std::string>& stops)
    : tokenizer_(tokenizer),
      decoder_(tokenizer, /*skip_special_tokens=*/true),
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
