#include "mlxx/nn/router.h"

namespace mlxx::nn {
namespace {

mx::array first_of_last_axis(const mx::array& a, int from, int to) {
  mx::Shape start(a.ndim(), 0);
  mx::Shape stop = a.shape();
  start.back() = from;
  stop.back() = to;
  return mx::slice(a, start, stop);
}

mx::array divided_by_sum(const mx::array& weights) {
  return mx::divide(weights, mx::sum(weights, -1, /* keepdims= */ true));
}

// scores [..., experts] with zeros for the groups that are not kept.
mx::array keep_best_groups(
    const mx::array& scores,
    const GroupedSigmoidOptions& options) {
  mx::array grouped = mx::unflatten(scores, -1, {options.groups, -1});
  mx::array sums = mx::sum(mx::topk(grouped, 2, -1), -1, /* keepdims= */ true);
  int dropped = options.groups - options.groups_kept;
  mx::array order = mx::argpartition(sums, dropped - 1, -2);
  mx::Shape start(order.ndim(), 0);
  mx::Shape stop = order.shape();
  stop[order.ndim() - 2] = dropped;
  mx::array worst = mx::slice(order, start, stop);
  grouped = mx::put_along_axis(
      grouped,
      mx::stop_gradient(worst),
      mx::array(0.0f),
      -2);
  return mx::flatten(grouped, -2, -1);
}

}  // namespace

mx::array top_experts(const mx::array& scores, int k, TopK side) {
  mx::array best = side == TopK::last
      ? first_of_last_axis(
            mx::argpartition(scores, -k, -1),
            scores.shape(-1) - k,
            scores.shape(-1))
      : first_of_last_axis(
            mx::argpartition(mx::negative(scores), k - 1, -1),
            0,
            k);
  return mx::stop_gradient(best);
}

Routing softmax_then_top_k(
    const mx::array& logits,
    int k,
    TopK side,
    bool renormalize) {
  mx::array scores = mx::softmax(logits, -1, /* precise= */ true);
  mx::array experts = top_experts(scores, k, side);
  mx::array weights = mx::take_along_axis(scores, experts, -1);
  return {experts, renormalize ? divided_by_sum(weights) : weights};
}

Routing top_k_then_softmax(
    const mx::array& logits,
    int k,
    TopK side,
    ChosenSoftmax softmax) {
  mx::array experts = top_experts(logits, k, side);
  mx::array chosen = mx::take_along_axis(logits, experts, -1);
  if (softmax == ChosenSoftmax::float32) {
    chosen = mx::astype(chosen, mx::float32);
  }
  return {experts, mx::softmax(chosen, -1, softmax == ChosenSoftmax::precise)};
}

Routing grouped_sigmoid(
    const mx::array& logits,
    const mx::array& bias,
    const GroupedSigmoidOptions& options) {
  // mlx-lm compiles this; no product is followed by a sum here, so fused
  // kernels round as these operations do.
  mx::array scores = mx::sigmoid(mx::astype(logits, mx::float32));
  mx::array biased = mx::add(scores, bias);
  if (options.groups > 1) {
    biased = keep_best_groups(biased, options);
  }
  mx::array experts =
      top_experts(biased, options.top_k, TopK::first_of_negated);
  mx::array weights = mx::take_along_axis(scores, experts, -1);
  if (options.top_k > 1 && options.renormalize) {
    weights = divided_by_sum(weights);
  }
  return {experts, mx::multiply(weights, mx::array(options.scale))};
}

Routing biased_sigmoid(
    const mx::array& logits,
    const std::optional<mx::array>& bias,
    mx::Dtype dtype,
    const BiasedSigmoidOptions& options) {
  mx::array scores = mx::sigmoid(logits);
  mx::array ranked =
      bias ? mx::add(mx::astype(scores, mx::float32), *bias) : scores;
  mx::array experts = top_experts(ranked, options.top_k, options.side);
  mx::array weights = mx::take_along_axis(scores, experts, -1);
  if (options.renormalize_epsilon) {
    weights = mx::divide(
        weights,
        mx::add(
            mx::sum(weights, -1, /* keepdims= */ true),
            mx::array(*options.renormalize_epsilon, weights.dtype())));
  }
  if (options.scale != 1.0f) {
    weights = mx::multiply(weights, mx::array(options.scale, weights.dtype()));
  }
  return {experts, mx::astype(weights, dtype)};
}

}  // namespace mlxx::nn
