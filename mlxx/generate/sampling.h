#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::generate {

// Names and defaults are mlx-lm's (make_sampler, make_logits_processors).
struct SamplingOptions {
  float temperature = 0.0f;  // 0 is greedy
  float top_p = 1.0f;        // 1 (or 0, as in mlx-lm) is off
  int top_k = 0;             // 0, or at least the vocabulary, is off
  float min_p = 0.0f;
  int min_tokens_to_keep = 1;
  float xtc_probability = 0.0f;
  float xtc_threshold = 0.0f;
  float repetition_penalty = 0.0f;  // 0 or 1 is off
  int repetition_context_size = 20;
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  int penalty_context_size = 20;    // for presence and frequency
  std::map<int, float> logit_bias;  // clamped to [-100, 100]
  std::optional<int64_t> seed;      // absent: a fresh one; 0 is a real seed
};

// Throws invalid_request that names the option and the value.
void validate(const SamplingOptions& options, int vocab_size);

}  // namespace mlxx::generate
