#include "mlxx/generate/sampling.h"

#include <cmath>
#include <random>

#include "mlxx/base/error.h"

namespace mlxx::generate {

namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;

// Written so that NaN fails too.
void require_between(const char* name, float value, float min, float max) {
  if (!(value >= min && value <= max)) {
    fail(kInvalid, name, "must be between {} and {}, got {}", min, max, value);
  }
}

void require_at_least(const char* name, int value, int min) {
  if (value < min) {
    fail(kInvalid, name, "must be at least {}, got {}", min, value);
  }
}

void require_token(const char* name, int64_t id, int vocab_size) {
  if (id < 0 || (vocab_size > 0 && id >= vocab_size)) {
    fail(
        kInvalid,
        name,
        "token id must be between 0 and {}, got {}",
        vocab_size > 0 ? std::to_string(vocab_size - 1) : "the vocabulary size",
        id);
  }
}

}  // namespace

void validate(const SamplingOptions& options, int vocab_size) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    fail(
        kInvalid,
        "temperature",
        "must be a finite number of at least 0, got {}",
        options.temperature);
  }
  require_between("top_p", options.top_p, 0, 1);
  require_at_least("top_k", options.top_k, 0);
  require_between("min_p", options.min_p, 0, 1);
  require_at_least("min_tokens_to_keep", options.min_tokens_to_keep, 1);
  require_between("xtc_probability", options.xtc_probability, 0, 1);
  require_between("xtc_threshold", options.xtc_threshold, 0, 0.5f);
  if (options.xtc_special_tokens) {
    for (int32_t id : *options.xtc_special_tokens) {
      require_token("xtc_special_tokens", id, vocab_size);
    }
  }
  if (!std::isfinite(options.repetition_penalty) ||
      options.repetition_penalty < 0) {
    fail(
        kInvalid,
        "repetition_penalty",
        "must be a finite number of at least 0, got {}",
        options.repetition_penalty);
  }
  require_at_least(
      "repetition_context_size",
      options.repetition_context_size,
      0);
  require_between("presence_penalty", options.presence_penalty, -2, 2);
  require_between("frequency_penalty", options.frequency_penalty, -2, 2);
  require_at_least("penalty_context_size", options.penalty_context_size, 0);
  for (const auto& [id, bias] : options.logit_bias) {
    require_token("logit_bias", id, vocab_size);
    if (!std::isfinite(bias)) {
      fail(
          kInvalid,
          "logit_bias",
          "the bias of token {} must be a finite number, got {}",
          id,
          bias);
    }
  }
}

int64_t resolve_seed(const SamplingOptions& options) {
  if (options.seed) {
    return *options.seed;
  }
  std::random_device device;
  uint64_t bits = (uint64_t{device()} << 32) | device();
  return static_cast<int64_t>(bits >> 1);
}

}  // namespace mlxx::generate
