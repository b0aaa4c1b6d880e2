#include "mlxx/kernels/attention/blocked_attention.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "mlxx/core/custom_vjp.h"
#include "mlxx/core/device.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// Scores that are there at one time, as far as a block of few queries allows.
// A GPU wants more of them than a cache holds.
constexpr int64_t kScores = int64_t{1} << 21;
constexpr int64_t kDeviceScores = int64_t{1} << 25;
constexpr int kFewestQueries = 64;
constexpr int kMostQueries = 1024;

// Queries [first, last) and the keys that any of them sees.
struct Block {
  int first;
  int last;
  int key_first;
  int key_last;
  mx::array mask;  // [queries, keys] bool
};

mx::array tokens(const mx::array& x, int first, int last) {
  return mx::slice(
      x,
      {0, 0, first, 0},
      {x.shape(0), x.shape(1), last, x.shape(3)});
}

mx::array last_two_swapped(const mx::array& x) {
  return mx::swapaxes(x, -1, -2);
}

mx::array in_float(const mx::array& x) {
  return mx::astype(x, mx::float32);
}

Block block_of(const std::vector<SeenTokens>& seen, int first, int last) {
  int from = std::numeric_limits<int>::max();
  int to = 0;
  for (int i = first; i < last; ++i) {
    const auto& s = seen[i];
    from = std::min(from, s.begin);
    if (s.parent_end > s.parent_begin) {
      from = std::min(from, s.parent_begin);
    }
    to = std::max(to, s.end);
  }
  // Row by row on the device: what is kept is linear in the queries.
  std::vector<int> bounds;
  for (int i = first; i < last; ++i) {
    const auto& s = seen[i];
    bounds.insert(bounds.end(), {s.parent_begin, s.parent_end, s.begin, s.end});
  }
  mx::array limits(bounds.data(), {last - first, 4}, mx::int32);
  mx::array keys = mx::expand_dims(mx::arange(from, to), 0);
  auto bound = [&](int column) {
    return mx::slice(limits, {0, column}, {last - first, column + 1});
  };
  auto within = [&](int column) {
    return mx::logical_and(
        mx::greater_equal(keys, bound(column)),
        mx::less(keys, bound(column + 1)));
  };
  return {first, last, from, to, mx::logical_or(within(0), within(2))};
}

// The attention of one shape, with what both passes share.
class BlockedAttention {
 public:
  BlockedAttention(
      const mx::Shape& queries,
      int kv_heads,
      const TrainingAttention& options)
      : kv_heads_(kv_heads),
        group_(queries[1] / kv_heads),
        scale_(options.scale),
        softcap_(options.softcap),
        sinks_(options.sinks.has_value()),
        seen_(seen_tokens(options.segments, options.window, queries[2])) {
    int length = queries[2];
    int64_t each = int64_t{queries[0]} * queries[1] * length;
    int64_t scores = backend() == Backend::cpu ? kScores : kDeviceScores;
    int64_t most = std::clamp<int64_t>(
        scores / std::max<int64_t>(each, 1),
        kFewestQueries,
        kMostQueries);
    for (int at = 0; at < length; at += static_cast<int>(most)) {
      int last = std::min(length, at + static_cast<int>(most));
      blocks_.push_back({at, last});
    }
  }

  // Outputs [B, H, L, D] and log-sums [B, H, L, 1] float32.
  Arrays forward(const Arrays& x) const {
    Arrays outs;
    Arrays log_sums;
    for (auto [first, last] : blocks_) {
      Block block = block_of(seen_, first, last);
      mx::array s = scores(x, block);
      std::optional<mx::array> sink;
      mx::array most = mx::max(s, -1, true);
      if (sinks_) {
        sink = grouped_sinks(x[3]);
        most = mx::maximum(most, *sink);
      }
      mx::array p = mx::exp(mx::subtract(s, most));
      mx::array sum = mx::sum(p, -1, true);
      if (sink) {
        sum = mx::add(sum, mx::exp(mx::subtract(*sink, most)));
      }
      mx::array out = product(
          mx::astype(mx::divide(p, sum), x[2].dtype()),
          tokens(x[2], block.key_first, block.key_last));
      outs.push_back(ungrouped(out, last - first));
      log_sums.push_back(ungrouped(mx::add(most, mx::log(sum)), last - first));
    }
    return {
        mx::astype(mx::concatenate(outs, 2), x[0].dtype()),
        mx::concatenate(log_sums, 2)};
  }

  Arrays backward(const Arrays& x, const mx::array& d, const Arrays& out)
      const {
    mx::array deltas =
        mx::sum(mx::multiply(in_float(d), in_float(out[0])), -1, true);
    Arrays d_queries;
    std::optional<mx::array> d_keys;
    std::optional<mx::array> d_values;
    for (auto [first, last] : blocks_) {
      Block block = block_of(seen_, first, last);
      mx::array s = scores(x, block);
      mx::array p =
          mx::exp(mx::subtract(s, grouped(tokens(out[1], first, last))));
      mx::array d_out = flat(tokens(d, first, last));
      mx::array keys = tokens(x[1], block.key_first, block.key_last);
      mx::array values = tokens(x[2], block.key_first, block.key_last);
      mx::array d_p =
          unflat(mx::matmul(d_out, last_two_swapped(values)), last - first);
      mx::array d_s = mx::multiply(
          p,
          mx::subtract(in_float(d_p), grouped(tokens(deltas, first, last))));
      if (softcap_ != 0) {
        mx::array part = mx::multiply(s, mx::array(1 / softcap_));
        mx::array slope = mx::subtract(mx::array(1.0f), mx::square(part));
        d_s = mx::where(block.mask, mx::multiply(d_s, slope), mx::array(0.0f));
      }
      d_s = flat_scores(mx::astype(d_s, x[0].dtype()));
      mx::array probabilities = flat_scores(mx::astype(p, d.dtype()));
      d_queries.push_back(
          ungrouped(unflat(mx::matmul(d_s, keys), last - first), last - first));
      auto add = [&](std::optional<mx::array>& sum, const mx::array& part) {
        mx::array padded = mx::pad(
            in_float(part),
            std::vector<int>{2},
            mx::Shape{block.key_first},
            mx::Shape{x[1].shape(2) - block.key_last});
        sum = sum ? mx::add(*sum, padded) : padded;
      };
      add(d_keys,
          mx::matmul(last_two_swapped(d_s), flat(tokens(x[0], first, last))));
      add(d_values, mx::matmul(last_two_swapped(probabilities), d_out));
    }
    mx::array by(scale_);
    Arrays result{
        scaled(mx::concatenate(d_queries, 2)),
        mx::astype(mx::multiply(*d_keys, by), x[1].dtype()),
        mx::astype(*d_values, x[2].dtype())};
    if (sinks_) {
      mx::array weight = mx::exp(mx::subtract(
          in_float(mx::reshape(x[3], {1, x[0].shape(1), 1, 1})),
          out[1]));
      result.push_back(mx::astype(
          mx::negative(
              mx::sum(mx::multiply(weight, deltas), std::vector<int>{0, 2, 3})),
          x[3].dtype()));
    }
    return result;
  }

 private:
  mx::array scaled(const mx::array& x) const {
    return mx::multiply(x, mx::array(scale_, x.dtype()));
  }
  // [B, H, n, m] <-> [B, K, G, n, m] <-> [B, K, G * n, m]
  mx::array grouped(const mx::array& x) const {
    return mx::unflatten(x, 1, {kv_heads_, group_});
  }
  mx::array flat(const mx::array& x) const {
    return mx::flatten(grouped(x), 2, 3);
  }
  mx::array flat_scores(const mx::array& x) const {
    return mx::flatten(x, 2, 3);
  }
  mx::array unflat(const mx::array& x, int rows) const {
    return mx::unflatten(x, 2, {group_, rows});
  }
  mx::array ungrouped(const mx::array& x, int) const {
    return mx::flatten(x, 1, 2);
  }
  mx::array grouped_sinks(const mx::array& sinks) const {
    return in_float(mx::reshape(sinks, {1, kv_heads_, group_, 1, 1}));
  }
  mx::array product(const mx::array& p, const mx::array& values) const {
    return unflat(mx::matmul(flat_scores(p), values), p.shape(3));
  }

  // [B, K, G, queries, keys] float32, hidden ones at the lowest number.
  mx::array scores(const Arrays& x, const Block& block) const {
    mx::array queries = flat(scaled(tokens(x[0], block.first, block.last)));
    mx::array keys = tokens(x[1], block.key_first, block.key_last);
    mx::array s = in_float(unflat(
        mx::matmul(queries, last_two_swapped(keys)),
        block.last - block.first));
    if (softcap_ != 0) {
      mx::array cap(softcap_);
      s = mx::multiply(mx::tanh(mx::divide(s, cap)), cap);
    }
    return mx::where(
        block.mask,
        s,
        mx::array(std::numeric_limits<float>::lowest()));
  }

  int kv_heads_;
  int group_;
  float scale_;
  float softcap_;
  bool sinks_;
  std::vector<SeenTokens> seen_;
  std::vector<std::pair<int, int>> blocks_;
};

}  // namespace

mx::array blocked_attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    const TrainingAttention& options) {
  auto attention = std::make_shared<const BlockedAttention>(
      queries.shape(),
      keys.shape(1),
      options);
  auto function = custom_vjp(
      "training attention",
      [attention](const Arrays& x) { return attention->forward(x); },
      [attention](const Arrays& x, const Arrays& d, const Arrays& out) {
        return attention->backward(x, d[0], out);
      });
  Arrays inputs{queries, keys, values};
  if (options.sinks) {
    inputs.push_back(*options.sinks);
  }
  return function(inputs)[0];
}

}  // namespace mlxx::kernels
