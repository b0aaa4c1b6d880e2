#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/generate/sampling.h"
#include "mlxx/kernels/select.h"

namespace mlxx::generate {

// The filters follow mlx-lm's sample_utils.py. Each takes log-probabilities
// [B, V] in float32, sets those of removed tokens to -inf and leaves at least
// one token per row.

// Keeps the likeliest tokens until their mass reaches `top_p` (in (0, 1)) of
// the row's; ties with the last kept one stay. `fallback` is for
// kernels::top_p_threshold.
mx::array
apply_top_p(const mx::array& logprobs, float top_p, bool fallback = false);

// Removes tokens less likely than `min_p` (in (0, 1]) times the likeliest, but
// never the likeliest `min_tokens_to_keep`.
mx::array
apply_min_p(const mx::array& logprobs, float min_p, int min_tokens_to_keep);

// Exclude top choices: of the tokens above `threshold` only the least likely
// stays, in the rows where `active` ([B, 1], bool) says so. `special_tokens`
// are never removed.
mx::array apply_xtc(
    const mx::array& logprobs,
    const mx::array& active,
    float threshold,
    const std::vector<int32_t>& special_tokens);

// Keeps the `top_k` likeliest; from V on it changes nothing.
mx::array apply_top_k(const mx::array& logprobs, int top_k);

// What one row's random numbers come from, and nothing else does: neither the
// other rows nor earlier draws change them.
struct SampleKey {
  int64_t seed;
  int64_t step;  // tokens of this answer that were sampled before
};

struct Sampled {
  mx::array tokens;  // [B] int32
  // [B] float32: finite if and only if the choice rests on finite numbers.
  mx::array check;
};

// Chooses one token per row, in mlx-lm's order: top-p, min-p, xtc, top-k on
// the distribution at temperature 1, then temperature, then the draw. At
// temperature 0 it is the argmax. Immutable.
class Sampler {
 public:
  // `options` must have passed validate(). The kernels are those that the
  // environment asks for; MLXX_KERNEL=fallback keeps to plain MLX operations.
  explicit Sampler(const SamplingOptions& options);
  Sampler(const SamplingOptions& options, const kernels::Selection& selection);

  // logits [B, V] in any floating type (computed in float32), one key per row.
  Sampled sample(const mx::array& logits, std::span<const SampleKey> keys)
      const;

  // What `sample` draws from: the filters applied to [B, V] log-probabilities.
  mx::array filter(const mx::array& logprobs, std::span<const SampleKey> keys)
      const;

 private:
  SamplingOptions options_;
  kernels::Selection selection_;
};

}  // namespace mlxx::generate
