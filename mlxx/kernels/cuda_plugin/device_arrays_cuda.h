#pragma once

#include <string_view>

#include <mlx/backend/cuda/device.h>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"

// MLX's arrays as memory on the device, for the plug-in's own launches. MLX
// records its operations into a graph and launches that when it commits; our
// kernels go to the same stream right after a commit, so that everything runs
// in the order in which it is evaluated.

namespace mlxx::kernels {

// `array` is evaluated or an output that was allocated.
void* device_pointer(const mx::array& array);
template <typename T>
T* device_pointer_as(const mx::array& array) {
  return static_cast<T*>(device_pointer(array));
}

// out_of_memory or internal, by what `doing` names, unless status is success.
void check(cuda::Status status, std::string_view doing);

// Memory on the device for outputs of a primitive of that stream, where MLX's
// own function is not exported: MLX's operation that fills an array allocates.
class OutputMemory {
 public:
  explicit OutputMemory(mx::Stream stream);
  // `output` has a primitive.
  void allocate(mx::array& output) const;
  // uint8 [bytes], of no operation.
  mx::array make(int bytes) const;

 private:
  mx::array zero_;
  mx::array filled_;
};

// Of MLX's default device.
mx::Stream default_stream();

// Lets the driver keep so much of what MLX frees, for what it allocates next;
// otherwise all of it goes back to the system whenever the device is waited
// for. Dropped by 0. Never fails.
void keep_freed_memory(size_t bytes);

// Launches what MLX has recorded and gives the stream for launches of our own.
cuda::Stream committed_stream(mx::Stream stream);

}  // namespace mlxx::kernels
