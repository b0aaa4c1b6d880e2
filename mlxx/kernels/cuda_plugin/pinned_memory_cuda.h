#pragma once

#include <memory>

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {

// Pinned host memory in small pieces, for results that the device writes and
// the host reads at once: MLX would copy device memory into managed memory,
// which costs a round trip, and managed memory moves by page faults.
class PinnedMemory : public std::enable_shared_from_this<PinnedMemory> {
 public:
  static constexpr size_t kPieceBytes = 4096;

  // That of the process.
  static std::shared_ptr<PinnedMemory> shared();
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Gives `output` a piece; false if it needs more than one. The piece is free
  // when nobody holds the array; what is launched on the array's stream until
  // then may still use it, since a later user's writes come after that.
  bool allocate(mx::array& output);

 private:
  struct Pieces;
  PinnedMemory();
  std::unique_ptr<Pieces> pieces_;
};

}  // namespace mlxx::kernels
