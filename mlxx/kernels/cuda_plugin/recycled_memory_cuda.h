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
  // Larger ones are made each time.
  static constexpr size_t kMostBytes = size_t{8} << 20;

  static std::shared_ptr<RecycledMemory> make();
  ~RecycledMemory();
  RecycledMemory(const RecycledMemory&) = delete;
  RecycledMemory& operator=(const RecycledMemory&) = delete;

  // As OutputMemory::allocate(); new memory is from there.
  void allocate(mx::array& output, const OutputMemory& memory);
  // Bytes of those that nobody holds.
  size_t nbytes() const;

 private:
  struct Buffers;
  RecycledMemory();
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace mlxx::kernels
