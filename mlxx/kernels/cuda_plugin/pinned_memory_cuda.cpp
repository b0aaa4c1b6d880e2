#include "mlxx/kernels/cuda_plugin/pinned_memory_cuda.h"

#include <mutex>

#include <cuda_runtime.h>
#include <mlx/backend/cuda/allocator.h>

#include "mlxx/kernels/cuda_plugin/device_arrays_cuda.h"

namespace mlxx::kernels {

struct PinnedMemory::Pieces {
  static constexpr size_t kAtOnce = 64;
  std::mutex mutex;
  std::vector<void*> blocks;
  std::vector<void*> free;
};

PinnedMemory::PinnedMemory() : pieces_(std::make_unique<Pieces>()) {}

PinnedMemory::~PinnedMemory() {
  for (void* block : pieces_->blocks) {
    cudaFreeHost(block);
  }
}

std::shared_ptr<PinnedMemory> PinnedMemory::shared() {
  static const std::shared_ptr<PinnedMemory> memory(new PinnedMemory);
  return memory;
}

bool PinnedMemory::allocate(mx::array& output) {
  if (output.nbytes() > kPieceBytes) {
    return false;
  }
  void* piece = nullptr;
  {
    std::lock_guard lock(pieces_->mutex);
    if (pieces_->free.empty()) {
      void* block = nullptr;
      check(
          cudaHostAlloc(
              &block,
              kPieceBytes * Pieces::kAtOnce,
              cudaHostAllocPortable | cudaHostAllocMapped),
          "allocating pinned memory");
      pieces_->blocks.push_back(block);
      for (size_t i = 0; i < Pieces::kAtOnce; ++i) {
        pieces_->free.push_back(static_cast<char*>(block) + i * kPieceBytes);
      }
    }
    piece = pieces_->free.back();
    pieces_->free.pop_back();
  }
  // MLX takes -1 for memory that host and device both see.
  auto buffer = std::make_unique<mx::cu::CudaBuffer>(
      mx::cu::CudaBuffer{piece, kPieceBytes, -1});
  output.set_data(mx::allocator::Data(
      mx::allocator::Buffer(buffer.release()),
      [memory = shared_from_this()](mx::allocator::Buffer given) {
        std::unique_ptr<mx::cu::CudaBuffer> back(
            static_cast<mx::cu::CudaBuffer*>(given.ptr()));
        std::lock_guard lock(memory->pieces_->mutex);
        memory->pieces_->free.push_back(back->data);
      }));
  return true;
}

}  // namespace mlxx::kernels
