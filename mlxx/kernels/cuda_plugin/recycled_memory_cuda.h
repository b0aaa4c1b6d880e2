#pragma once

#include <memory>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/cuda_plugin/device_arrays_cuda.h"

namespace mlxx::kernels {

// Memory on the device for outputs of the same few sizes, made once: what
// OutputMemory gives is filled each time. Of one stream, whose order lets a
// buffer serve again as soon as nobody holds its array.
class RecycledMemory : public std::enable_shared_from_this<RecycledMemory> {
 public:
  struct Limits {
    size_t bytes = size_t{8} << 20;  // of one; larger ones are made each time
    size_t count = 2;                // of a size that nobody holds
    size_t all = size_t{64} << 20;   // bytes that nobody holds
  };
  static std::shared_ptr<RecycledMemory> make(const Limits& limits);
  // That of what is brought into MLX's form for the moment, of all matrices
  // together; alive as long as one of them is.
  static std::shared_ptr<RecycledMemory> of_matrices();
  ~RecycledMemory();
  RecycledMemory(const RecycledMemory&) = delete;
  RecycledMemory& operator=(const RecycledMemory&) = delete;

  // As OutputMemory::allocate(); new memory is from there.
  void allocate(mx::array& output, const OutputMemory& memory);
  // Bytes of those that nobody holds.
  size_t nbytes() const;

 private:
  struct Buffers;
  explicit RecycledMemory(const Limits& limits);
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace mlxx::kernels
