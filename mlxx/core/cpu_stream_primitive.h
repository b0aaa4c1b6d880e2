#pragma once

#include <functional>
#include <string>
#include <vector>

#include <mlx/primitives.h>

#include "mlxx/core/mlx.h"

namespace mlxx {

// An operation of ours that MLX runs on a CPU stream.
class CpuStreamPrimitive : public mx::Primitive {
 public:
  CpuStreamPrimitive(std::string name, mx::Stream stream);

  // Never called by MLX: the stream is a CPU's.
  void eval_gpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override;
  const char* name() const override {
    return name_.c_str();
  }

 protected:
  // Runs `work` when the inputs are there. It may keep pointers into inputs
  // and outputs: MLX holds them until it has run.
  void dispatch(std::function<void()> work);

 private:
  std::string name_;
};

}  // namespace mlxx
