#include "mlxx/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mlxx/generate/token_choices.h"
#include "mlxx/kernels/top_p/top_p.h"

namespace mlxx::generate {

namespace {

mx::array negative_infinity() {
  return mx::array(-std::numeric_limits<float>::infinity());
}

mx::array random_key_array(const SampleKey& key, Draw draw) {
  auto [first, second] = random_key(key, draw);
  return mx::array({first, second}, mx::uint32);
}

// Row r is [1, n] uniform numbers in [0, 1) from keys[r] alone.
mx::array
uniform_rows(std::span<const SampleKey> keys, Draw draw, mx::ShapeElem n) {
  std::vector<mx::array> rows;
  rows.reserve(keys.size());
  for (const SampleKey& key : keys) {
    rows.push_back(
        mx::random::uniform({1, n}, mx::float32, random_key_array(key, draw)));
  }
  return rows.size() == 1 ? rows[0] : mx::concatenate(rows, 0);
}

// [B, n] with the same ids in every row.
mx::array id_rows(const std::vector<int32_t>& ids, mx::ShapeElem rows) {
  auto n = static_cast<mx::ShapeElem>(ids.size());
  mx::array row(ids.begin(), {1, n}, mx::int32);
  return mx::broadcast_to(row, {rows, n});
}

mx::array at_tokens(const mx::array& values, const mx::array& tokens) {
  auto picked = mx::take_along_axis(values, mx::expand_dims(tokens, -1), -1);
  return mx::astype(mx::squeeze(picked, -1), mx::float32);
}

}  // namespace

mx::array apply_top_p(const mx::array& logprobs, float top_p, bool fallback) {
  auto threshold = kernels::top_p_threshold(logprobs, top_p, fallback);
  return mx::where(logprobs < threshold, negative_infinity(), logprobs);
}

mx::array
apply_min_p(const mx::array& logprobs, float min_p, int min_tokens_to_keep) {
  int vocabulary = logprobs.shape(-1);
  if (min_tokens_to_keep >= vocabulary) {
    return logprobs;
  }
  auto top = mx::max(logprobs, -1, /*keepdims=*/true);
  auto scaled =
      top + mx::array(static_cast<float>(std::log(static_cast<double>(min_p))));
  auto removed = logprobs < scaled;
  if (min_tokens_to_keep > 1) {
    auto order = mx::argpartition(logprobs, -min_tokens_to_keep, -1);
    auto kept = mx::slice(
        order,
        {0, vocabulary - min_tokens_to_keep},
        {logprobs.shape(0), vocabulary});
    removed = mx::put_along_axis(removed, kept, mx::array(false), -1);
  }
  return mx::where(removed, negative_infinity(), logprobs);
}

mx::array apply_xtc(
    const mx::array& logprobs,
    const mx::array& active,
    float threshold,
    const std::vector<int32_t>& special_tokens) {
  auto probs = mx::softmax(logprobs, -1);
  auto infinity = mx::array(std::numeric_limits<float>::infinity());
  auto least = mx::min(
      mx::where(probs > mx::array(threshold), probs, infinity),
      -1,
      /*keepdims=*/true);
  auto removed = probs > least;
  if (!special_tokens.empty()) {
    removed = mx::put_along_axis(
        removed,
        id_rows(special_tokens, logprobs.shape(0)),
        mx::array(false),
        -1);
  }
  return mx::where(
      mx::logical_and(active, removed),
      negative_infinity(),
      logprobs);
}

mx::array apply_top_k(const mx::array& logprobs, int top_k) {
  int vocabulary = logprobs.shape(-1);
  if (top_k >= vocabulary) {
    return logprobs;
  }
  auto order = mx::argpartition(mx::negative(logprobs), top_k - 1, -1);
  auto removed = mx::slice(order, {0, top_k}, {logprobs.shape(0), vocabulary});
  return mx::put_along_axis(logprobs, removed, negative_infinity(), -1);
}

Sampler::Sampler(const SamplingOptions& options)
    : Sampler(options, sampling_kernels()) {}

Sampler::Sampler(
    const SamplingOptions& options,
    const kernels::Selection& selection)
    : options_(options), selection_(selection) {}

mx::array Sampler::filter(
    const mx::array& logprobs,
    std::span<const SampleKey> keys) const {
  auto kept = logprobs;
  if (options_.top_p > 0 && options_.top_p < 1) {
    kept = apply_top_p(kept, options_.top_p, selection_.fallback);
  }
  if (options_.min_p > 0) {
    kept = apply_min_p(kept, options_.min_p, options_.min_tokens_to_keep);
  }
  if (options_.xtc_probability > 0) {
    auto active =
        uniform_rows(keys, Draw::xtc, 1) <= mx::array(options_.xtc_probability);
    kept = apply_xtc(
        kept,
        active,
        options_.xtc_threshold,
        options_.xtc_special_tokens.value_or(std::vector<int32_t>{}));
  }
  if (options_.top_k > 0) {
    kept = apply_top_k(kept, options_.top_k);
  }
  return kept;
}

Sampled Sampler::sample(
    const mx::array& logits,
    std::span<const SampleKey> keys) const {
  if (chooses_by_kernel(selection_, logits)) {
    std::vector<kernels::TokenChoice> rows(keys.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      set_sampling(options_, keys[row], rows[row]);
    }
    auto chosen = kernels::choose_tokens_cpu(
        logits,
        mx::zeros({logits.shape(0)}, mx::int32),
        std::move(rows),
        selection_);
    return {chosen.tokens, chosen.check};
  }
  if (const auto* plugin = chooses_on_cuda(selection_, logits)) {
    std::vector<kernels::cuda::TokenSampling> rows;
    for (const SampleKey& key : keys) {
      if (auto row = cuda_sampling(options_, key)) {
        rows.push_back(*row);
      }
    }
    if (rows.size() == keys.size()) {
      auto chosen = plugin->choose(logits, std::move(rows));
      return {chosen.tokens, chosen.check};
    }
  }
  if (options_.temperature == 0) {
    // The largest logit is the largest log-probability: no normalisation.
    auto tokens = mx::astype(mx::argmax(logits, -1), mx::int32);
    return {tokens, at_tokens(logits, tokens)};
  }
  auto wide = mx::astype(logits, mx::float32);
  auto logprobs = wide - mx::logsumexp(wide, -1, /*keepdims=*/true);
  auto kept = filter(logprobs, keys);
  // Relative to the likeliest, so that no temperature makes 0 * inf; below
  // 1e-6 the draw is the argmax anyway.
  auto top = mx::max(kept, -1, /*keepdims=*/true);
  auto scaled = (kept - top) / mx::array(std::max(options_.temperature, 1e-6f));
  // Gumbel-max. A uniform 0 would remove its token, which may be the only one.
  auto uniform = mx::maximum(
      uniform_rows(keys, Draw::token, logits.shape(-1)),
      mx::array(0x1p-33f));
  auto noise = mx::negative(mx::log(mx::negative(mx::log(uniform))));
  auto tokens = mx::astype(mx::argmax(scaled + noise, -1), mx::int32);
  return {tokens, at_tokens(logprobs, tokens)};
}

}  // namespace mlxx::generate
