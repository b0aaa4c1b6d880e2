#include "mlxx/engine/request_checks.h"

#include <algorithm>

#include "mlxx/base/error.h"

namespace mlxx::engine {

namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;

}  // namespace

void check_request(const Request& request, int max_rows) {
  generate::validate(request.sampling, /*vocab_size=*/0);
  if (request.prompt.empty()) {
    fail(kInvalid, "prompt", "must have at least one token");
  }
  if (request.max_tokens < 0) {
    fail(
        kInvalid,
        "max_tokens",
        "must be at least 0, got {}",
        request.max_tokens);
  }
  if (request.n < 1 || request.n > max_rows) {
    fail(
        kInvalid,
        "n",
        "must be between 1 and {}, as many answers as are decoded together, "
        "got {}",
        max_rows,
        request.n);
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) {
      fail(kInvalid, "stop", "a stop string must not be empty");
    }
  }
  if (request.top_logprobs && *request.top_logprobs < 0) {
    fail(
        kInvalid,
        "top_logprobs",
        "must be at least 0, got {}",
        *request.top_logprobs);
  }
  if (request.reasoning && request.reasoning->budget.value_or(0) < 0) {
    fail(
        kInvalid,
        "reasoning_budget",
        "must be at least 0, got {}",
        *request.reasoning->budget);
  }
}

void check_for_model(
    const Request& request,
    const ModelText& text,
    int vocab_size) {
  if (text.is_embedding_model || text.is_reranker) {
    fail(
        kInvalid,
        "model",
        "{} gives {}, not answers",
        text.name,
        text.is_reranker ? "scores" : "vectors");
  }
  generate::validate(request.sampling, vocab_size);
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    int32_t id = request.prompt[i];
    if (id < 0 || id >= vocab_size) {
      fail(
          kInvalid,
          "prompt",
          "token ids must be between 0 and {}, got {} at position {}",
          vocab_size - 1,
          id,
          i);
    }
  }
  // An answer of no tokens needs no room.
  size_t room = request.max_tokens > 0 ? 1 : 0;
  if (text.context_length > 0 &&
      request.prompt.size() + room > static_cast<size_t>(text.context_length)) {
    fail(
        kInvalid,
        "context_length_exceeded",
        "the model's context has {} tokens, the prompt alone {}, which leaves "
        "no room for an answer",
        text.context_length,
        request.prompt.size());
  }
  if (request.top_logprobs && *request.top_logprobs > vocab_size) {
    fail(
        kInvalid,
        "top_logprobs",
        "must be at most the vocabulary of {}, got {}",
        vocab_size,
        *request.top_logprobs);
  }
}

int tokens_to_generate(const Request& request, const ModelText& text) {
  if (text.context_length <= 0) {
    return request.max_tokens;
  }
  int64_t left =
      text.context_length - static_cast<int64_t>(request.prompt.size());
  return static_cast<int>(
      std::clamp<int64_t>(request.max_tokens, 0, std::max<int64_t>(left, 0)));
}

}  // namespace mlxx::engine
