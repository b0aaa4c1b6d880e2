#include "mlxx/adapters/embedding_change.h"

#include "mlxx/adapters/linear_change.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

namespace mlxx::adapters {
namespace {

// Panels want whole groups; zeros add nothing.
constexpr int kGroup = 32;

mx::array with_zeros(const mx::array& matrix, int more_rows, int more_columns) {
  mx::array padded = mx::contiguous(mx::pad(
      mx::astype(matrix, mx::float32),
      {{0, more_rows}, {0, more_columns}},
      mx::array(0.0f)));
  mx::eval(padded);
  return padded;
}

mx::array scaled(float scale, const mx::array& x) {
  return mx::multiply(mx::array(scale, x.dtype()), x);
}

}  // namespace

EmbeddingChange::EmbeddingChange(
    const LowRank& change,
    const Parameter& table,
    const kernels::Selection& selection)
    : a_(mx::contiguous(change.a)),
      b_(mx::contiguous(change.b)),
      scale_(change.scale),
      magnitude_(change.magnitude) {
  if (magnitude_) {
    mx::array adapted =
        mx::add(dense_weight(table), mx::matmul(scaled(scale_, a_), b_));
    gain_ = mx::divide(*magnitude_, mx::linalg::norm(adapted, {1}));
    mx::eval(*gain_);
  }
  if (selection.has_cpu_kernels() && b_.shape(1) % kGroup == 0) {
    int more = (kGroup - a_.shape(1) % kGroup) % kGroup;
    packed_a_ = kernels::pack_dense(with_zeros(a_, 0, more), selection);
    packed_b_ = kernels::pack_dense(with_zeros(b_, more, 0), selection);
    packed_turned_b_ =
        kernels::pack_dense(with_zeros(mx::transpose(b_), 0, more), selection);
  }
  if (packed_a_ && packed_b_ && packed_turned_b_) {
    a_ = mx::array(0.0f);
    b_ = mx::array(0.0f);
  } else {
    packed_a_ = nullptr;
    mx::eval(a_, b_);
  }
}

mx::array EmbeddingChange::rows(const mx::array& ids, const mx::array& plain)
    const {
  mx::array rows = packed_a_ ? packed_a_->take_rows(ids) : mx::take(a_, ids, 0);
  auto turned = [&](const mx::array& x) {
    return packed_a_ ? packed_turned_b_->matmul(x) : mx::matmul(x, b_);
  };
  if (!magnitude_) {
    mx::array z = scaled(scale_, turned(rows));
    return mx::add(plain, mx::astype(z, plain.dtype()));
  }
  mx::array z = turned(scaled(scale_, rows));
  mx::array out = mx::add(plain, mx::astype(z, plain.dtype()));
  mx::array lengths = mx::linalg::norm(mx::add(plain, z), {-1});
  mx::array gain = mx::divide(mx::take(*magnitude_, ids, 0), lengths);
  return mx::multiply(mx::expand_dims(gain, -1), out);
}

mx::array EmbeddingChange::head(const mx::array& x, const mx::array& plain)
    const {
  mx::array z = packed_a_
      ? packed_a_->matmul(packed_b_->matmul(x))
      : mx::matmul(mx::matmul(x, mx::transpose(b_)), mx::transpose(a_));
  mx::array y = mx::add(plain, mx::astype(scaled(scale_, z), x.dtype()));
  return gain_ ? mx::multiply(*gain_, y) : y;
}

size_t EmbeddingChange::nbytes() const {
  size_t bytes = packed_a_
      ? packed_a_->nbytes() + packed_b_->nbytes() + packed_turned_b_->nbytes()
      : a_.nbytes() + b_.nbytes();
  for (const auto& part : {magnitude_, gain_}) {
    bytes += part ? part->nbytes() : 0;
  }
  return bytes;
}

}  // namespace mlxx::adapters
