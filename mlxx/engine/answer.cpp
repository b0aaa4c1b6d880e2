#include "mlxx/engine/answer.h"

#include <algorithm>
#include <utility>

#include "mlxx/base/error.h"

namespace mlxx::engine {

namespace {

bool allows(const TokenMask& mask, int32_t token) {
  size_t word = static_cast<size_t>(token) / 32;
  return word < mask.size() && ((mask[word] >> (token % 32)) & 1u) != 0;
}

void set(TokenMask& mask, int32_t token, bool allowed) {
  size_t word = static_cast<size_t>(token) / 32;
  if (token < 0 || word >= mask.size()) {
    return;
  }
  uint32_t bit = uint32_t{1} << (token % 32);
  mask[word] = allowed ? mask[word] | bit : mask[word] & ~bit;
}

// A mark may be forced, so the model must be able to write it.
void check_marks(const ReasoningTracker& reasoning, int vocab_size) {
  for (const auto* mark :
       {&reasoning.begin_tokens(), &reasoning.end_tokens()}) {
    for (int32_t token : *mark) {
      if (token >= vocab_size) {
        fail(
            ErrorKind::unsupported,
            "reasoning",
            "a mark of it has the token {}, the model only {}",
            token,
            vocab_size);
      }
    }
  }
}

}  // namespace

Answer::Answer(
    const Request& request,
    const ModelText& text,
    int vocab_size,
    int max_tokens,
    int choice)
    : choice_(choice),
      vocab_size_(vocab_size),
      max_tokens_(max_tokens),
      ignore_eos_(request.ignore_eos),
      eos_ids_(text.eos_ids),
      text_(text.tokenizer, request.stop, request.visible_tokens) {
  if (request.reasoning) {
    reasoning_.emplace(*request.reasoning, text.tokenizer);
    check_marks(*reasoning_, vocab_size);
  }
  usage.prompt_tokens = static_cast<int>(request.prompt.size());
}

void Answer::follow(text::GrammarMatcher matcher, size_t mask_words) {
  matcher_words_ = mask_words;
  matcher_.emplace(std::move(matcher));
  grammar_ = Grammar::active;
  if (reasoning_) {
    switch (reasoning_->phase()) {
      case ReasoningTracker::Phase::undecided:
        grammar_ = Grammar::undecided;
        break;
      case ReasoningTracker::Phase::reasoning:
        grammar_ = Grammar::reasoning;
        break;
      case ReasoningTracker::Phase::answer:
        break;
    }
  }
}

bool Answer::waits_for(int unread) const {
  return unread > 0 &&
      (grammar_ != Grammar::none ||
       (reasoning_ && reasoning_->may_force_after(unread)));
}

// As wide as the logits, without what lies past them.
TokenMask Answer::cut(TokenMask mask) const {
  size_t vocabulary = static_cast<size_t>(vocab_size_);
  mask.resize((vocabulary + 31) / 32, 0);
  if (vocabulary % 32 != 0) {
    mask.back() &= (uint32_t{1} << (vocabulary % 32)) - 1;
  }
  return mask;
}

TokenMask Answer::all_but_eos() const {
  size_t words = (static_cast<size_t>(vocab_size_) + 31) / 32;
  TokenMask mask = cut(TokenMask(words, ~uint32_t{0}));
  for (int32_t id : eos_ids_) {
    set(mask, id, false);
  }
  return mask;
}

TokenMask Answer::only(int32_t token) const {
  TokenMask mask((static_cast<size_t>(vocab_size_) + 31) / 32, 0);
  set(mask, token, true);
  return mask;
}

TokenMask Answer::grammar_mask() {
  TokenMask mask(matcher_words_);
  matcher_->mask(mask);
  mask = cut(std::move(mask));
  if (std::all_of(mask.begin(), mask.end(), [](uint32_t w) {
        return w == 0;
      })) {
    fail(
        ErrorKind::internal,
        "constraint",
        "no token may follow after {} tokens of the answer",
        tokens_.size());
  }
  return mask;
}

// Only if its mark cannot be the grammar's own text.
bool Answer::reasoning_may_begin(const TokenMask& grammar) const {
  const auto& begin = reasoning_->begin_tokens();
  return !begin.empty() && !allows(grammar, begin.front());
}

TokenMask Answer::next_mask() {
  if (reasoning_) {
    if (auto forced = reasoning_->forced()) {
      return only(*forced);
    }
  }
  switch (grammar_) {
    case Grammar::none:
      return {};
    case Grammar::undecided: {
      TokenMask mask = grammar_mask();
      if (reasoning_may_begin(mask)) {
        set(mask, reasoning_->begin_tokens().front(), true);
      }
      return mask;
    }
    case Grammar::opening:
      return only(reasoning_->begin_tokens()[opened_]);
    case Grammar::reasoning:
      return all_but_eos();
    case Grammar::active:
      return grammar_mask();
  }
  return {};
}

bool Answer::advance_grammar(int32_t token) {
  if (grammar_ == Grammar::undecided) {
    const auto& begin = reasoning_->begin_tokens();
    if (reasoning_may_begin(grammar_mask()) && token == begin.front()) {
      grammar_ = Grammar::opening;
    } else {
      grammar_ = Grammar::active;
      reasoning_->begin_answer();
    }
  }
  if (grammar_ == Grammar::opening) {
    ++opened_;
    if (opened_ == reasoning_->begin_tokens().size()) {
      grammar_ = Grammar::reasoning;
      reasoning_->begin_reasoning();
    }
    return false;
  }
  if (grammar_ == Grammar::reasoning) {
    if (reasoning_->phase() == ReasoningTracker::Phase::answer) {
      grammar_ = Grammar::active;
    }
    return false;
  }
  if (!matcher_->commit(token)) {
    fail(
        ErrorKind::internal,
        "constraint",
        "token {} was chosen although the grammar does not allow it after {} "
        "tokens of the answer",
        token,
        tokens_.size() - 1);
  }
  return matcher_->is_stopped();
}

Event Answer::take(AnswerToken token) {
  Event event;
  event.choice = choice_;
  int32_t id = token.token;
  bool is_eos = eos_ids_.contains(id);
  tokens_.push_back(id);
  ++usage.completion_tokens;
  if (reasoning_) {
    reasoning_->step(id);
    usage.reasoning_tokens = reasoning_->tokens();
  }
  bool complete = false;
  if (grammar_ != Grammar::none) {
    // The reasoning's tokens are not the grammar's; its EOS ends the answer.
    complete = advance_grammar(id);
  }
  if (is_eos && (!ignore_eos_ || complete)) {
    event.text = text_.flush();
    end(event, FinishReason::stop, text_.stop());
    return event;
  }
  event.text = text_.step(id);
  event.tokens.push_back(std::move(token));
  if (text_.stopped()) {
    end(event, FinishReason::stop, text_.stop());
  } else if (complete || usage.completion_tokens >= max_tokens_) {
    event.text += text_.flush();
    bool stopped = complete || text_.stopped();
    end(event,
        stopped ? FinishReason::stop : FinishReason::length,
        text_.stop());
  }
  return event;
}

Event Answer::finish(FinishReason reason, std::shared_ptr<const Error> error) {
  Event event;
  event.choice = choice_;
  event.text = text_.flush();
  end(event, reason, {});
  event.finish->error = std::move(error);
  return event;
}

void Answer::end(Event& event, FinishReason reason, std::string stop_sequence) {
  finished_ = true;
  event.finish = Finish{reason, std::move(stop_sequence), usage, nullptr};
}

}  // namespace mlxx::engine
