#pragma once

#include <functional>
#include <vector>

#include "mlxx/core/cpu_stream_primitive.h"

namespace mlxx::kernels {

// An operation of ours that MLX runs on its CPU stream, with one output of the
// first input's shape. Its gradient is that of the plain operations that it
// replaces.
class CpuPrimitive : public CpuStreamPrimitive {
 public:
  using Fallback =
      std::function<std::vector<mx::array>(const std::vector<mx::array>&)>;

  CpuPrimitive(const char* name, Fallback fallback);

  virtual void eval_cpu(
      const std::vector<mx::array>& inputs,
      mx::array& output) = 0;
  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) final;
  std::vector<mx::array> vjp(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& cotangents,
      const std::vector<int>& argnums,
      const std::vector<mx::array>& outputs) override;
  std::vector<mx::Shape> output_shapes(
      const std::vector<mx::array>& inputs) override {
    return {inputs[0].shape()};
  }

 private:
  Fallback fallback_;
};

// A float32 array of that shape that `primitive` makes from `inputs`.
mx::array make_lazy(
    const mx::Shape& shape,
    std::shared_ptr<CpuPrimitive> primitive,
    std::vector<mx::array> inputs);

}  // namespace mlxx::kernels
