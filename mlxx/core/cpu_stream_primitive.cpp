#include "mlxx/core/cpu_stream_primitive.h"

#include <mlx/backend/cpu/encoder.h>

#include "mlxx/base/error.h"

namespace mlxx {

CpuStreamPrimitive::CpuStreamPrimitive(std::string name, mx::Stream stream)
    : Primitive(stream), name_(std::move(name)) {}

void CpuStreamPrimitive::eval_gpu(
    const std::vector<mx::array>&,
    std::vector<mx::array>&) {
  fail(ErrorKind::internal, name_, "runs on the CPU only");
}

void CpuStreamPrimitive::dispatch(std::function<void()> work) {
  mx::cpu::get_command_encoder(stream()).dispatch(std::move(work));
}

}  // namespace mlxx
