#include "mlxx/kernels/cpu_primitive.h"

namespace mlxx::kernels {

CpuPrimitive::CpuPrimitive(const char* name, Fallback fallback)
    : CpuStreamPrimitive(name, mx::default_stream(mx::Device::cpu)),
      fallback_(std::move(fallback)) {}

void CpuPrimitive::eval_cpu(
    const std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs) {
  eval_cpu(inputs, outputs[0]);
}

std::vector<mx::array> CpuPrimitive::vjp(
    const std::vector<mx::array>& primals,
    const std::vector<mx::array>& cotangents,
    const std::vector<int>& argnums,
    const std::vector<mx::array>&) {
  auto all = mx::vjp(fallback_, primals, cotangents).second;
  std::vector<mx::array> wanted;
  for (int index : argnums) {
    wanted.push_back(all[index]);
  }
  return wanted;
}

mx::array make_lazy(
    const mx::Shape& shape,
    std::shared_ptr<CpuPrimitive> primitive,
    std::vector<mx::array> inputs) {
  return mx::array(shape, mx::float32, std::move(primitive), std::move(inputs));
}

}  // namespace mlxx::kernels
