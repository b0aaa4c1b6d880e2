#pragma once

#include <vector>

#include "mlxx/kernels/attention/training_attention.h"

namespace mlxx::nn {

// Whole texts that are computed at once and without a cache, as in training.
struct TrainingRows {
  // Of the one row that is packed; empty: each row is one text from position 0.
  std::vector<kernels::RowSegment> segments = {};
  // For the backward pass: of a layer its input, what products give and what
  // attention gives are kept, while norms, activations and the small products
  // of adapters are computed again.
  bool keeps_products = false;

  // Of the tokens of a row, [length] int32; 0 for tokens of no segment.
  mx::array positions(int length) const;
  // x [B, H, L, D] cut along L at the segments; change(part, position of its
  // first token) of each, together again.
  template <typename Change>
  mx::array by_segments(const mx::array& x, const Change& change) const {
    if (segments.empty()) {
      return change(x, 0);
    }
    std::vector<mx::array> parts;
    int at = 0;
    auto slice = [&](int begin, int end) {
      return mx::slice(
          x,
          {0, 0, begin, 0},
          {x.shape(0), x.shape(1), end, x.shape(3)});
    };
    for (size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].begin > at) {
        parts.push_back(slice(at, segments[i].begin));
      }
      parts.push_back(change(
          slice(segments[i].begin, segments[i].end),
          kernels::first_position(segments, static_cast<int>(i))));
      at = segments[i].end;
    }
    if (at < x.shape(2)) {
      parts.push_back(slice(at, x.shape(2)));
    }
    return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 2);
  }
};

// Attention called on this thread is that of whole texts as long as this lives:
// it reads no cache and writes none. Scopes nest; the innermost one counts.
class TrainingScope {
 public:
  explicit TrainingScope(const TrainingRows* rows);
  ~TrainingScope();
  TrainingScope(const TrainingScope&) = delete;
  TrainingScope& operator=(const TrainingScope&) = delete;

 private:
  const TrainingRows* outer_;
};

// Null outside of every scope.
const TrainingRows* training_rows();

}  // namespace mlxx::nn
