#include "mlxx/adapters/linear_change.h"

#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

namespace mlxx::adapters {
namespace {

// Panels want whole groups of inputs; zeros add nothing.
constexpr int kGroup = 32;

// [n, m] with columns of zeros up to a multiple of kGroup.
mx::array with_whole_groups(const mx::array& matrix) {
  int more = (kGroup - matrix.shape(1) % kGroup) % kGroup;
  return mx::contiguous(
      mx::pad(matrix, {{0, 0}, {0, more}}, mx::array(0, matrix.dtype())));
}

mx::array with_whole_rows(const mx::array& matrix) {
  int more = (kGroup - matrix.shape(0) % kGroup) % kGroup;
  return mx::contiguous(
      mx::pad(matrix, {{0, more}, {0, 0}}, mx::array(0, matrix.dtype())));
}

}  // namespace

mx::array dense_weight(const Parameter& weight) {
  WeightArrays arrays = weight.restore();
  if (!arrays.scales) {
    return arrays.weight;
  }
  const QuantizationSpec& q = *weight.quantization();
  return mx::dequantize(
      arrays.weight,
      *arrays.scales,
      arrays.biases,
      q.group_size,
      q.bits,
      q.mode);
}

LinearChange::LinearChange(
    const LowRank& change,
    const Parameter& weight,
    const kernels::Selection& selection,
    Use use)
    : selection_(selection), a_(change.a), b_(change.b), scale_(change.scale) {
  if (change.magnitude) {
    // As mlx_lm/tuner/dora.py computes it at each call.
    mx::array scaled =
        mx::multiply(mx::array(scale_, b_.dtype()), mx::transpose(b_));
    mx::array adapted =
        mx::add(dense_weight(weight), mx::matmul(scaled, mx::transpose(a_)));
    gain_ = mx::divide(*change.magnitude, mx::linalg::norm(adapted, {1}));
    mx::eval(*gain_);
  }
  if (use == Use::program) {
    in_program_ = std::make_shared<const kernels::LowRankChange>(
        kernels::make_low_rank_change(a_, b_, scale_, gain_));
    mx::eval(a_, b_);
  } else {
    pack();
  }
}

void LinearChange::pack() const {
  is_packed_ = true;
  if (selection_.has_cpu_kernels()) {
    auto f32 = [](const mx::array& matrix) {
      return mx::astype(matrix, mx::float32);
    };
    mx::array rows_a =
        with_whole_rows(with_whole_groups(f32(mx::transpose(a_))));
    mx::array rows_b = with_whole_groups(f32(mx::transpose(b_)));
    mx::eval(rows_a, rows_b);
    packed_a_ = kernels::pack_dense(rows_a, selection_);
    packed_b_ = kernels::pack_dense(rows_b, selection_);
  }
  // a has its inputs padded too: only where the model's width is odd.
  if (!packed_a_ || !packed_b_ || a_.shape(0) % kGroup != 0) {
    packed_a_ = nullptr;
    packed_b_ = nullptr;
    a_ = mx::contiguous(a_);
    b_ = mx::contiguous(b_);
    mx::eval(a_, b_);
  } else {
    a_ = mx::array(0.0f);
    b_ = mx::array(0.0f);
  }
}

mx::array LinearChange::delta(const mx::array& x) const {
  if (!is_packed_) {
    pack();
  }
  mx::array z = packed_a_ ? packed_b_->matmul(packed_a_->matmul(x))
                          : mx::matmul(mx::matmul(x, a_), b_);
  return mx::astype(mx::multiply(mx::array(scale_, z.dtype()), z), x.dtype());
}

mx::array LinearChange::gained(const mx::array& y) const {
  return mx::multiply(mx::astype(*gain_, y.dtype()), y);
}

size_t LinearChange::nbytes() const {
  size_t bytes = packed_a_ ? packed_a_->nbytes() + packed_b_->nbytes()
                           : a_.nbytes() + b_.nbytes();
  return bytes + (gain_ ? gain_->nbytes() : 0) +
      (in_program_ ? in_program_->nbytes() : 0);
}

}  // namespace mlxx::adapters
