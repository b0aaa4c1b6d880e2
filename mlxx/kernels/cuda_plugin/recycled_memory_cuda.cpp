#include "mlxx/kernels/cuda_plugin/recycled_memory_cuda.h"

#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include <mlx/backend/cuda/allocator.h>

namespace mlxx::kernels {

struct RecycledMemory::Buffers {
  // A step's outputs and those of the one that is read meanwhile.
  static constexpr size_t kMost = 2;  // of a size
  using Held = std::shared_ptr<mx::array::Data>;

  mutable std::mutex mutex;
  std::map<size_t, std::vector<Held>> free;  // by bytes
};

RecycledMemory::RecycledMemory() : buffers_(std::make_unique<Buffers>()) {}
RecycledMemory::~RecycledMemory() = default;

std::shared_ptr<RecycledMemory> RecycledMemory::make() {
  return std::shared_ptr<RecycledMemory>(new RecycledMemory);
}

void RecycledMemory::allocate(mx::array& output, const OutputMemory& memory) {
  if (output.nbytes() > kMostBytes) {
    memory.allocate(output);
    return;
  }
  size_t bytes = std::bit_ceil(std::max<size_t>(output.nbytes(), 256));
  Buffers::Held held;
  {
    std::lock_guard lock(buffers_->mutex);
    auto& free = buffers_->free[bytes];
    if (!free.empty()) {
      held = std::move(free.back());
      free.pop_back();
    }
  }
  if (!held) {
    held = memory.make(static_cast<int>(bytes)).data_shared_ptr();
  }
  mx::allocator::Buffer buffer = held->buffer();
  output.set_data(mx::allocator::Data(
      buffer,
      [bytes, held = std::move(held), pool = weak_from_this()](
          mx::allocator::Buffer) {
        // What the host has read is no longer there.
        const void* pointer = held->buffer().ptr();
        bool moved =
            static_cast<const mx::cu::CudaBuffer*>(pointer)->device < 0;
        auto own = pool.lock();
        if (own && !moved) {
          std::lock_guard lock(own->buffers_->mutex);
          auto& free = own->buffers_->free[bytes];
          if (free.size() < Buffers::kMost) {
            free.push_back(held);
          }
        }
      }));
}

size_t RecycledMemory::nbytes() const {
  std::lock_guard lock(buffers_->mutex);
  size_t sum = 0;
  for (const auto& [bytes, free] : buffers_->free) {
    sum += bytes * free.size();
  }
  return sum;
}

}  // namespace mlxx::kernels
