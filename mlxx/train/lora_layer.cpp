#include "mlxx/train/lora_layer.h"

#include "mlxx/adapters/linear_change.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/expert_matmul/sorted_rows.h"

namespace mlxx::train {
namespace {

constexpr uint64_t kHeadUse = 1;

// The finalizer of splitmix64: every bit of both counts.
uint64_t mixed(uint64_t hash, uint64_t value) {
  uint64_t z = hash + value + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

mx::array scaled(float scale, const mx::array& x) {
  return mx::multiply(mx::array(scale, x.dtype()), x);
}

// Lengths of the rows of W + scale * (a @ b).T, [out], without a gradient.
// a [in, r], b [r, out].
mx::array adapted_lengths(
    float scale,
    const mx::array& a,
    const mx::array& b,
    const Parameter& weight,
    const std::optional<mx::array>& squared) {
  if (!weight.packed()) {
    mx::array adapted = mx::add(
        adapters::dense_weight(weight),
        mx::matmul(scaled(scale, mx::transpose(b)), mx::transpose(a)));
    return mx::stop_gradient(mx::linalg::norm(adapted, {1}));
  }
  mx::array fixed_a = mx::stop_gradient(a);
  mx::array change = scaled(scale, mx::stop_gradient(b));
  // |w + c|^2 = |w|^2 + 2 w.c + |c|^2 with c = a @ change of one output.
  mx::array products = weight.packed()->matmul(mx::transpose(fixed_a));
  mx::array gram = mx::matmul(mx::transpose(fixed_a), fixed_a);
  mx::array cross = mx::sum(mx::multiply(products, change), 0);
  mx::array own = mx::sum(mx::multiply(mx::matmul(gram, change), change), 0);
  mx::array sum =
      mx::add(*squared, mx::add(mx::multiply(mx::array(2.0f), cross), own));
  return mx::stop_gradient(mx::sqrt(mx::maximum(sum, mx::array(0.0f))));
}

// x @ matrix [in, out], as the layer's own weight is multiplied where it is
// dense.
mx::array multiplied(
    const mx::array& x,
    const mx::array& matrix,
    const Parameter& weight) {
  return weight.product() ? (*weight.product())(x, mx::transpose(matrix))
                          : mx::matmul(x, matrix);
}

mx::array sliced(const mx::array& array, int axis, const OutputRange& range) {
  if (range.begin == 0 && range.end == array.shape(axis)) {
    return array;
  }
  mx::Shape start(array.ndim(), 0);
  mx::Shape stop = array.shape();
  start[static_cast<size_t>(axis)] = range.begin;
  stop[static_cast<size_t>(axis)] = range.end;
  return mx::slice(array, start, stop);
}

bool is_half_on_device(const mx::array& x) {
  return backend() != Backend::cpu &&
      (x.dtype() == mx::float16 || x.dtype() == mx::bfloat16);
}

}  // namespace

mx::array Dropout::operator()(const mx::array& x, uint64_t use) const {
  if (probability == 0) {
    return x;
  }
  uint64_t hash = mixed(seed, static_cast<uint64_t>(step));
  mx::array key = mx::random::key(mixed(mixed(hash, module), use));
  auto kept = static_cast<float>(1 - probability);
  mx::array mask = mx::random::bernoulli(mx::array(kept), x.shape(), key);
  return mx::multiply(
      mx::multiply(
          mx::array(static_cast<float>(1 / (1 - probability))),
          mx::astype(mask, mx::float32)),
      x);
}

mx::array squared_lengths(const Parameter& weight) {
  mx::array dense = mx::astype(adapters::dense_weight(weight), mx::float32);
  mx::array squared = mx::sum(mx::square(dense), -1);
  mx::eval(squared);
  return squared;
}

mx::array lora_product(
    const LoraModule& module,
    const LoraValues& values,
    const OutputRange& range,
    const Parameter& weight,
    const std::optional<Parameter>& bias,
    const std::optional<mx::array>& squared,
    const mx::array& x,
    const Dropout& dropout,
    const std::function<mx::array(bool)>& plain) {
  mx::array b = sliced(values.b, 1, range);
  auto delta = [&] {
    mx::array z =
        multiplied(multiplied(dropout(x), values.a, weight), b, weight);
    return mx::astype(scaled(module.scale, z), x.dtype());
  };
  if (!values.magnitude) {
    mx::array y = plain(true);
    if (is_half_on_device(x) && y.dtype() == x.dtype()) {
      // In one product with the sum, and in the layer's dtype: float32 copies
      // of inputs and outputs would take longer than all of this.
      mx::array z = mx::matmul(dropout(x), mx::astype(values.a, x.dtype()));
      return mx::addmm(
          y,
          scaled(module.scale, mx::astype(z, x.dtype())),
          mx::astype(b, x.dtype()));
    }
    return mx::add(y, delta());
  }
  // mlx-lm multiplies with the dequantized weight here.
  bool reference = weight.quantization() && !weight.packed();
  mx::array y = reference
      ? mx::matmul(x, mx::transpose(adapters::dense_weight(weight)))
      : plain(false);
  y = mx::add(y, delta());
  mx::array lengths =
      adapted_lengths(module.scale, values.a, b, weight, squared);
  mx::array gain = mx::divide(sliced(*values.magnitude, 0, range), lengths);
  y = mx::multiply(mx::astype(gain, x.dtype()), y);
  return bias ? mx::add(y, bias->value()) : y;
}

mx::array lora_expert_product(
    const LoraModule& module,
    const LoraValues& values,
    const mx::array& x,
    const mx::array& indices,
    bool sorted,
    const Dropout& dropout,
    const std::function<mx::array()>& plain) {
  mx::array y = plain();
  auto product = [&](const mx::array& rows, const mx::array& matrices) {
    return mx::gather_mm(
        sorted ? kernels::sorted_rows(rows) : rows,
        mx::swapaxes(matrices, -1, -2),
        std::nullopt,
        indices,
        sorted);
  };
  mx::array z = product(product(dropout(x), values.a), values.b);
  return mx::add(y, mx::astype(scaled(module.scale, z), x.dtype()));
}

mx::array lora_rows(
    const LoraModule& module,
    const LoraValues& values,
    const mx::array& ids,
    const Dropout& dropout,
    const std::function<mx::array()>& plain) {
  mx::array y = plain();
  mx::array rows = mx::take(values.a, ids, 0);
  if (!values.magnitude) {
    mx::array z = dropout(mx::matmul(rows, values.b));
    return mx::add(y, mx::astype(scaled(module.scale, z), y.dtype()));
  }
  mx::array z = mx::matmul(scaled(module.scale, rows), values.b);
  mx::array out = mx::add(y, mx::astype(dropout(z), y.dtype()));
  mx::array lengths = mx::stop_gradient(mx::linalg::norm(mx::add(y, z), {-1}));
  mx::array gain = mx::divide(mx::take(*values.magnitude, ids, 0), lengths);
  return mx::multiply(mx::expand_dims(gain, -1), out);
}

mx::array lora_head(
    const LoraModule& module,
    const LoraValues& values,
    const Parameter& table,
    const std::optional<mx::array>& squared,
    const mx::array& x,
    const Dropout& dropout,
    const std::function<mx::array()>& plain) {
  mx::array y = plain();
  mx::array z = multiplied(
      multiplied(dropout(x, kHeadUse), mx::transpose(values.b), table),
      mx::transpose(values.a),
      table);
  y = mx::add(y, mx::astype(scaled(module.scale, z), x.dtype()));
  if (!values.magnitude) {
    return y;
  }
  mx::array lengths = [&] {
    if (table.packed()) {
      return adapted_lengths(
          module.scale,
          mx::transpose(values.b),
          mx::transpose(values.a),
          table,
          squared);
    }
    mx::array adapted = mx::add(
        adapters::dense_weight(table),
        mx::matmul(scaled(module.scale, values.a), values.b));
    return mx::stop_gradient(mx::linalg::norm(adapted, {1}));
  }();
  return mx::multiply(mx::divide(*values.magnitude, lengths), y);
}

}  // namespace mlxx::train
