#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/select.h"
#include "mlxx/kernels/token_choice/choice_kernels.h"

namespace mlxx::kernels {

// How one row chooses: mlx-lm's rules, in the order of these members. What is
// left at its default does nothing.
struct TokenChoice {
  std::vector<std::pair<int32_t, float>> bias;  // each id once
  // Of the newest tokens, the fed one being the last: known_tokens and then
  // that.
  std::vector<int32_t> known_tokens;
  float repetition = 1;
  int repetition_window = 0;  // tokens; 0: all that are given
  float presence = 0;
  float frequency = 0;
  int penalty_window = 0;
  std::vector<uint32_t> allowed;  // bit i of word w: token 32 w + i; empty: all

  float temperature = 0;  // 0: the likeliest, without filters
  float top_p = 0;        // in (0, 1)
  float min_p = 0;
  int min_tokens_to_keep = 1;
  std::optional<float> xtc_threshold;  // if it takes part this time
  std::vector<int32_t> xtc_special_tokens;
  int top_k = 0;
  RandomKey key{0, 0};

  std::optional<int> top_logprobs;  // that are wanted of the row
  // The token is this one, whatever the numbers are: its probability is what
  // is asked for.
  std::optional<int32_t> given;
};

struct TokenChoices {
  mx::array tokens;  // [B] int32
  // [B] float32: finite if and only if the choice rests on finite numbers.
  mx::array check;
  // Of the distribution before bias, penalties and filters, of rows that want
  // them; of others 0.
  mx::array logprobs;  // [B] float32, of the tokens
  // [B, N], N the most that a row wants; of equal ones the lower id first.
  mx::array top_tokens;    // int32
  mx::array top_logprobs;  // float32
};

// logits [B, V] float32, fed [B] int32 (the tokens that led to them, which
// penalties look at). On the CPU, one operation: the rows are shared among the
// threads, or computed by the calling one if the selection has none. A row's
// result has the same bits whatever rows are beside it. Not differentiable.
// The random numbers are those of mx::random::uniform; sums and exponentials
// are ours.
TokenChoices choose_tokens_cpu(
    const mx::array& logits,
    const mx::array& fed,
    std::vector<TokenChoice> rows,
    const Selection& selection);

// Uniform in [0, 1): number `index` of the `count` that mx::random::uniform
// makes from the key.
float uniform_number(RandomKey key, int64_t index, int64_t count);

}  // namespace mlxx::kernels
