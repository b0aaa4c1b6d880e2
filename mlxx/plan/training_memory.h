#pragma once

#include <cstddef>

namespace mlxx::plan {

// Bytes of MLX's memory that a step of training takes at most, by what for.
struct TrainingMemory {
  size_t weights = 0;      // of the model
  size_t trained = 0;      // what changes, where it is beside the weights
  size_t optimizer = 0;    // what the optimizer keeps
  size_t activations = 0;  // of the forward and backward pass, and gradients

  size_t total() const {
    return weights + trained + optimizer + activations;
  }
};

}  // namespace mlxx::plan
