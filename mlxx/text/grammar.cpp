#include "mlxx/text/grammar.h"

#include "mlxx/text/tokenizer_impl.h"

namespace mlxx::text {

namespace {

constexpr const char* kPlace = "grammar";

std::vector<uint32_t> checked_ids(
    std::span<const int32_t> tokens,
    int32_t vocabulary_size) {
  std::vector<uint32_t> ids;
  ids.reserve(tokens.size());
  for (int32_t token : tokens) {
    if (token < 0 || token >= vocabulary_size) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "the token id {} is outside the vocabulary of {}",
          token,
          vocabulary_size);
    }
    ids.push_back(static_cast<uint32_t>(token));
  }
  return ids;
}

// Without what llguidance adds for its own developers: the parser's state.
void check_grammar(int code, MlxxBytes& error, ErrorKind kind) {
  try {
    check_rust(code, error, kind, kPlace);
  } catch (const Error& problem) {
    const std::string_view message = problem.what();
    const size_t end = message.find("\\n<state>");
    if (end == std::string_view::npos) {
      throw;
    }
    throw Error(problem.kind(), message.substr(0, end));
  }
}

}  // namespace

struct GrammarTokens::Impl {
  MlxxGrammarTokens* handle = nullptr;
  int32_t vocabulary_size = 0;
  ~Impl() {
    mlxx_grammar_tokens_free(handle);
  }
};

std::shared_ptr<const GrammarTokens> GrammarTokens::make(
    const Tokenizer& tokenizer,
    int32_t vocabulary_size,
    std::span<const int32_t> eos_tokens) {
  constexpr int32_t kLargestVocabulary = 1 << 24;
  if (vocabulary_size < 1 || vocabulary_size > kLargestVocabulary) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "a vocabulary of {} tokens is not possible",
        vocabulary_size);
  }
  auto impl = std::make_unique<Impl>();
  impl->vocabulary_size = vocabulary_size;
  std::vector<uint32_t> eos = checked_ids(eos_tokens, vocabulary_size);
  MlxxBytes error{};
  int code = mlxx_grammar_tokens_new(
      tokenizer.impl().handle,
      static_cast<size_t>(vocabulary_size),
      eos.data(),
      eos.size(),
      &impl->handle,
      &error);
  check_grammar(code, error, ErrorKind::invalid_request);
  return std::shared_ptr<const GrammarTokens>(
      new GrammarTokens(std::move(impl)));
}

GrammarTokens::GrammarTokens(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

GrammarTokens::~GrammarTokens() = default;

size_t GrammarTokens::mask_words() const {
  return (static_cast<size_t>(impl_->vocabulary_size) + 31) / 32;
}

struct GrammarMatcher::Impl {
  std::shared_ptr<const GrammarTokens> tokens;
  MlxxMatcher* handle = nullptr;
  // llguidance never recovers from a rollback beyond the start.
  size_t committed = 0;
  ~Impl() {
    mlxx_matcher_free(handle);
  }
};

GrammarMatcher::GrammarMatcher(
    std::shared_ptr<const GrammarTokens> tokens,
    GrammarKind kind,
    std::string_view grammar)
    : impl_(std::make_unique<Impl>()) {
  MlxxBytes error{};
  int code = mlxx_matcher_new(
      tokens->impl().handle,
      static_cast<uint32_t>(kind),
      byte_pointer(grammar),
      grammar.size(),
      &impl_->handle,
      &error);
  check_grammar(code, error, ErrorKind::invalid_request);
  impl_->tokens = std::move(tokens);
}

GrammarMatcher::GrammarMatcher(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;

GrammarMatcher GrammarMatcher::clone() const {
  auto impl = std::make_unique<Impl>();
  MlxxBytes error{};
  int code = mlxx_matcher_clone(impl_->handle, &impl->handle, &error);
  check_grammar(code, error, ErrorKind::internal);
  impl->tokens = impl_->tokens;
  impl->committed = impl_->committed;
  return GrammarMatcher(std::move(impl));
}

void GrammarMatcher::mask(std::span<uint32_t> mask) {
  MlxxBytes error{};
  int code = mlxx_matcher_mask(
      impl_->tokens->impl().handle,
      impl_->handle,
      mask.data(),
      mask.size(),
      &error);
  check_grammar(code, error, ErrorKind::invalid_request);
}

bool GrammarMatcher::commit(int32_t token) {
  uint32_t id =
      checked_ids({&token, 1}, impl_->tokens->impl().vocabulary_size)[0];
  bool taken = false;
  MlxxBytes error{};
  int code = mlxx_matcher_commit(impl_->handle, id, &taken, &error);
  check_grammar(code, error, ErrorKind::invalid_request);
  impl_->committed += taken ? 1 : 0;
  return taken;
}

size_t GrammarMatcher::validate(std::span<const int32_t> tokens) {
  std::vector<uint32_t> ids =
      checked_ids(tokens, impl_->tokens->impl().vocabulary_size);
  size_t taken = 0;
  MlxxBytes error{};
  int code = mlxx_matcher_validate(
      impl_->handle,
      ids.data(),
      ids.size(),
      &taken,
      &error);
  check_grammar(code, error, ErrorKind::invalid_request);
  return taken;
}

void GrammarMatcher::rollback(size_t count) {
  if (count > impl_->committed) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "{} tokens cannot be taken back, {} were committed",
        count,
        impl_->committed);
  }
  MlxxBytes error{};
  int code = mlxx_matcher_rollback(impl_->handle, count, &error);
  check_grammar(code, error, ErrorKind::internal);
  impl_->committed -= count;
}

bool GrammarMatcher::is_accepting() {
  bool accepting = false;
  MlxxBytes error{};
  int code = mlxx_matcher_is_accepting(impl_->handle, &accepting, &error);
  check_grammar(code, error, ErrorKind::internal);
  return accepting;
}

bool GrammarMatcher::is_stopped() const {
  return mlxx_matcher_is_stopped(impl_->handle);
}

std::vector<int32_t> GrammarMatcher::forced() {
  MlxxBytes ids{}, error{};
  int code = mlxx_matcher_forced(impl_->handle, &ids, &error);
  check_grammar(code, error, ErrorKind::internal);
  return take_ids(ids);
}

}  // namespace mlxx::text
