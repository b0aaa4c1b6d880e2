#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace mlxx::generate {

// Names and defaults are mlx-lm's (make_sampler, make_logits_processors).
struct SamplingOptions {
  float temperature = 0.0f;  // 0 is greedy, which ignores every filter
  float top_p = 1.0f;        // 1 (or 0, as in mlx-lm) is off
  int top_k = 0;             // 0, or at least the vocabulary, is off
  float min_p = 0.0f;
  int min_tokens_to_keep = 1;  // that min_p may not remove
  float xtc_probability = 0.0f;
  float xtc_threshold = 0.1f;
  // Never removed by xtc. Absent: generate() takes the newline and the EOS
  // tokens, as mlx-lm's programs do.
  std::optional<std::vector<int32_t>> xtc_special_tokens;
  float repetition_penalty = 0.0f;  // 0 or 1 is off
  // Newest tokens, prompt included, that a penalty looks at; 0 means all.
  int repetition_context_size = 20;
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  int penalty_context_size = 20;    // for presence and frequency
  std::map<int, float> logit_bias;  // clamped to [-100, 100]
  std::optional<int64_t> seed;      // absent: a fresh one; 0 is a real seed

  bool operator==(const SamplingOptions&) const = default;
};

// Throws invalid_request that names the option and the value. `vocab_size` is
// what token ids are checked against; 0 if it is not known yet.
void validate(const SamplingOptions& options, int vocab_size);

// options.seed, or a fresh non-negative one from the system's generator.
int64_t resolve_seed(const SamplingOptions& options);

}  // namespace mlxx::generate
