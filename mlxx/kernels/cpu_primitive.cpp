#include "mlxx/kernels/cpu_primitive.h"

#include <mlx/backend/cpu/encoder.h>

#include "mlxx/base/error.h"

namespace mlxx::kernels {

CpuPrimitive::CpuPrimitive(const char* name, Fallback fallback)
    : UnaryPrimitive(mx::default_stream(mx::Device::cpu)),
      name_(name),
      fallback_(std::move(fallback)) {}

void CpuPrimitive::eval_gpu(const std::vector<mx::array>&, mx::array&) {
  fail(ErrorKind::internal, name_, "runs on the CPU only");
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

void CpuPrimitive::dispatch(std::function<void()> work) {
  mx::cpu::get_command_encoder(stream()).dispatch(std::move(work));
}

mx::array make_lazy(
    const mx::Shape& shape,
    std::shared_ptr<CpuPrimitive> primitive,
    std::vector<mx::array> inputs) {
  return mx::array(shape, mx::float32, std::move(primitive), std::move(inputs));
}

}  // namespace mlxx::kernels
