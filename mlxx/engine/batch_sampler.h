#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/engine/runner.h"
#include "mlxx/generate/sampler.h"
#include "mlxx/generate/sampling.h"
#include "mlxx/kernels/select.h"

namespace mlxx::engine {

// How one row of a batch chooses.
struct RowChoice {
  const generate::SamplingOptions* sampling;  // validated, of the batch's life
  generate::SampleKey key;
  // The newest tokens that the row's penalties look at, without the one that
  // was fed last: at most generate::LogitsProcessors::window() - 1 of them.
  std::vector<int32_t> recent;
  std::optional<int> top_logprobs;
};

// What a batch chose; lazy.
struct ChosenTokens {
  mx::array tokens;  // [B] int32
  // [B] float32: finite if and only if the choice rests on finite numbers.
  mx::array check;
  // For rows that asked (others: anything), if any did. Of the model's
  // distribution, before penalties, bias, masks and filters.
  std::optional<mx::array> logprobs;  // [B] float32, of the tokens
  // [B, N] of the most that a row asked for, likeliest first, of equal ones
  // the lower id; absent for N = 0.
  std::optional<mx::array> top_tokens;    // int32
  std::optional<mx::array> top_logprobs;  // float32

  std::vector<mx::array> arrays() const;
};

// One token for each row, the same that generate::LogitsProcessors and Sampler
// give for the row alone. logits [B, V] in any floating type; fed [B] int32:
// the tokens that led to them. `masks`: one for each row, or none at all; what
// they don't allow is removed before anything is drawn.
ChosenTokens choose_tokens(
    const mx::array& logits,
    const mx::array& fed,
    std::span<const RowChoice> rows,
    std::span<const TokenMask> masks,
    const kernels::Selection& selection);

// As if each row had chosen the token that is given, tokens [B] int32, with the
// `top` likeliest beside it.
ChosenTokens score_tokens(
    const mx::array& logits,
    std::span<const int32_t> tokens,
    int top,
    const kernels::Selection& selection);

}  // namespace mlxx::engine
