#pragma once

#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::nn {

// Which experts a token goes to. Functions of the router's logits [...,
// experts] in the order of operations of mlx-lm 0.32.2, so that experts, their
// order and their weights are the same bit for bit. Gradients flow into the
// weights only.
struct Routing {
  mx::array experts;  // [..., k] uint32
  mx::array weights;  // [..., k]
};

// How the k largest are found. Both give the same experts where no two scores
// are equal, in another order, in which they are added up.
enum class TopK {
  first_of_negated,  // the first k after partitioning the negated scores
  last,              // the last k after partitioning the scores
};

// scores [..., n] -> indices [..., k] of the k largest. 1 <= k <= n.
mx::array top_experts(const mx::array& scores, int k, TopK side);

// Softmax over all experts, in float32 inside, then the k largest; weights in
// the logits' dtype, divided by their sum if `renormalize`. qwen2_moe, olmoe
// (first_of_negated), qwen3_moe, qwen3_next (last).
Routing
softmax_then_top_k(const mx::array& logits, int k, TopK side, bool renormalize);

enum class ChosenSoftmax {
  precise,  // in float32 inside, weights in the logits' dtype: mixtral, gpt_oss
  plain,    // in the logits' dtype: gemma4
  float32,  // of the logits as float32, which the weights stay: granitemoe
};

// The k largest logits, then softmax over these.
Routing top_k_then_softmax(
    const mx::array& logits,
    int k,
    TopK side,
    ChosenSoftmax softmax);

struct GroupedSigmoidOptions {
  int top_k = 1;
  int groups = 1;
  int groups_kept = 1;  // topk_group
  float scale = 1.0f;   // routed_scaling_factor
  bool renormalize = true;
};

// Sigmoid scores in float32; `bias` [experts] takes part in the choice only.
// Of the groups of experts only those with the largest sums of two scores are
// kept. Weights float32. deepseek_v3, glm4_moe (DeepSeek-V3, arXiv 2412.19437,
// section 2.1.2).
Routing grouped_sigmoid(
    const mx::array& logits,
    const mx::array& bias,
    const GroupedSigmoidOptions& options);

struct BiasedSigmoidOptions {
  int top_k = 1;
  TopK side = TopK::last;
  // Adds to the sum that weights are divided by; absent: they are not.
  std::optional<float> renormalize_epsilon = {};
  float scale = 1.0f;
};

// Sigmoid scores in the logits' dtype; `bias` [experts] float32, if there is
// one, takes part in the choice only. Weights are cast to `dtype`. lfm2_moe
// (last, 1e-6), minimax (first_of_negated, 1e-20, no scale).
Routing biased_sigmoid(
    const mx::array& logits,
    const std::optional<mx::array>& bias,
    mx::Dtype dtype,
    const BiasedSigmoidOptions& options);

}  // namespace mlxx::nn
