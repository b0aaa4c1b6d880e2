#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::train {

// The arrays that training changes, always the same ones in the same order: an
// adapter's, or the weights of a model. One thread, MLX's.
class Trainable {
 public:
  virtual ~Trainable() = default;

  // Sorted as the reference's tree is flattened; unique.
  virtual const std::vector<std::string>& names() const = 0;
  // The decoder layer that the parameter belongs to; -1 before the first one
  // (embedding), the number of layers after the last one (norm, head).
  virtual int layer(size_t index) const = 0;
  // What is trained and kept: float32 for adapters.
  virtual const std::vector<mx::array>& values() const = 0;
  // Of the same shapes and dtypes; replaces them.
  virtual void set_values(std::vector<mx::array> values) = 0;

  // While `body` runs, on this thread, the model computes with `values` in
  // place of the parameters of those indices (traced arrays, or others), the
  // rest as they are. Restored if `body` throws.
  virtual void with(
      std::span<const size_t> indices,
      std::span<const mx::array> values,
      const std::function<void()>& body) = 0;
  // While `body` runs the model computes as it was before training: for the
  // reference of DPO. unsupported if that is not there any more.
  virtual void without(const std::function<void()>& body) = 0;

  // What is random in a step (dropout) depends on these numbers alone.
  virtual void begin_step(uint64_t seed, int64_t step) = 0;
  // What the optimizer multiplies its learning rate with (LoRA+).
  virtual float learning_rate_ratio(size_t /* index */) const {
    return 1;
  }
  // Off: as in inference.
  virtual void set_training(bool training) = 0;
};

}  // namespace mlxx::train
