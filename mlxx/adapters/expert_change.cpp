#include "mlxx/adapters/expert_change.h"

#include "mlxx/kernels/expert_matmul/expert_matmul.h"
#include "mlxx/kernels/expert_matmul/sorted_rows.h"

namespace mlxx::adapters {
namespace {

// Panels want whole groups of inputs; zeros add nothing.
constexpr int kGroup = 32;

mx::array with_zeros(const mx::array& stack, int more_rows, int more_columns) {
  mx::array padded = mx::contiguous(mx::pad(
      mx::astype(stack, mx::float32),
      {{0, 0}, {0, more_rows}, {0, more_columns}},
      mx::array(0.0f)));
  mx::eval(padded);
  return padded;
}

Parameter parameter_of(const mx::array& stack) {
  Parameter parameter(stack.shape(), Parameter::Kind::matrix);
  parameter.set({stack, std::nullopt, std::nullopt});
  return parameter;
}

}  // namespace

ExpertChange::ExpertChange(
    const LowRank& change,
    const kernels::Selection& selection)
    : scale_(change.scale) {
  if (selection.has_cpu_kernels() && change.a.shape(2) % kGroup == 0) {
    int more = (kGroup - change.a.shape(1) % kGroup) % kGroup;
    mx::array a = with_zeros(change.a, more, 0);
    mx::array b = with_zeros(change.b, 0, more);
    auto packed_a =
        kernels::pack_experts({a, std::nullopt, std::nullopt}, {}, selection);
    auto packed_b =
        kernels::pack_experts({b, std::nullopt, std::nullopt}, {}, selection);
    if (packed_a && packed_b) {
      a_ = parameter_of(a);
      b_ = parameter_of(b);
      a_.set_packed(std::move(packed_a));
      b_.set_packed(std::move(packed_b));
      return;
    }
  }
  mx::array a = mx::contiguous(change.a);
  mx::array b = mx::contiguous(change.b);
  mx::eval(a, b);
  a_ = parameter_of(a);
  b_ = parameter_of(b);
}

mx::array ExpertChange::delta(
    const mx::array& x,
    const mx::array& indices,
    bool sorted) const {
  auto product = [&](const mx::array& rows, const Parameter& matrices) {
    if (matrices.packed()) {
      return kernels::expert_matmul(rows, matrices, indices, sorted);
    }
    return mx::gather_mm(
        sorted ? kernels::sorted_rows(rows) : rows,
        mx::swapaxes(matrices.value(), -1, -2),
        std::nullopt,
        indices,
        sorted);
  };
  mx::array z = product(product(x, a_), b_);
  return mx::astype(mx::multiply(mx::array(scale_, z.dtype()), z), x.dtype());
}

}  // namespace mlxx::adapters
