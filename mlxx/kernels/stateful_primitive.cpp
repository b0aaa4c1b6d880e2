#include "mlxx/kernels/stateful_primitive.h"

namespace mlxx::kernels {

StatefulPrimitive::StatefulPrimitive(
    const char* name,
    Fallback fallback,
    const Selection& selection)
    : CpuStreamPrimitive(name, mx::default_stream(mx::Device::cpu)),
      selection_(selection),
      fallback_(std::move(fallback)) {}

std::vector<mx::array> StatefulPrimitive::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  Arrays chosen;
  for (int index : argnums) {
    chosen.push_back(primals[index]);
  }
  // Only in what is asked for: others may be masks.
  auto function = [&](const Arrays& values) {
    Arrays all = primals;
    for (size_t i = 0; i < argnums.size(); ++i) {
      all[argnums[i]] = values[i];
    }
    return fallback_(all);
  };
  return mx::vjp(function, chosen, cotangents).second;
}

void StatefulPrimitive::take_or_allocate(
    const mx::array& old,
    mx::array& state) {
  if (old.is_donatable() && old.nbytes() == state.nbytes()) {
    state.copy_shared_buffer(old);
  } else {
    state.set_data(mx::allocator::malloc(state.nbytes()));
  }
}

mx::array in_order(const mx::array& a) {
  bool known = a.is_available() && a.flags().row_contiguous;
  return known ? a : mx::contiguous(a);
}

StatefulResult make_stateful(
    const mx::Shape& out,
    const mx::Shape& state,
    std::shared_ptr<StatefulPrimitive> primitive,
    const std::vector<mx::array>& inputs) {
  auto outputs = mx::array::make_arrays(
      {out, state},
      {mx::float32, mx::float32},
      primitive,
      inputs);
  return {outputs[0], outputs[1]};
}

}  // namespace mlxx::kernels
