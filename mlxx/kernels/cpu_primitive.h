#pragma once

#include <functional>
#include <vector>

#include <mlx/primitives.h>

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {

// An operation of ours with one output that MLX runs on its CPU stream. Its
// gradient is that of the plain operations that it replaces.
class CpuPrimitive : public mx::UnaryPrimitive {
 public:
  using Fallback =
      std::function<std::vector<mx::array>(const std::vector<mx::array>&)>;

  CpuPrimitive(const char* name, Fallback fallback);

  void eval_gpu(const std::vector<mx::array>&, mx::array&) override;
  std::vector<mx::array> vjp(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& cotangents,
      const std::vector<int>& argnums,
      const std::vector<mx::array>& outputs) override;
  const char* name() const override {
    return name_;
  }

 protected:
  // Runs `work` when the inputs are there. It may keep pointers into inputs
  // and output: MLX holds them until it has run.
  void dispatch(std::function<void()> work);

 private:
  const char* name_;
  Fallback fallback_;
};

// A float32 array of that shape that `primitive` makes from `inputs`.
mx::array make_lazy(
    const mx::Shape& shape,
    std::shared_ptr<CpuPrimitive> primitive,
    std::vector<mx::array> inputs);

}  // namespace mlxx::kernels
