#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace mlxx::kernels {

// What one product needs while it runs, kept for the next one: to touch memory
// that the system has just given takes as long as a sixth of a product of 500
// rows. A product waits for the one that has it, as it would for the threads.
class GemmMemory {
 public:
  // Holds the memory until it goes.
  class Lease {
   public:
    // Starts a cache line; set to nothing.
    float* data() const {
      return memory_.lines_[0].numbers;
    }

   private:
    friend class GemmMemory;
    Lease(GemmMemory& memory, int64_t numbers)
        : memory_(memory), lock_(memory.mutex_) {
      int64_t lines = numbers / kNumbers + 1;
      if (memory.count_ < lines) {
        memory.lines_.reset();
        memory.lines_ = std::make_unique_for_overwrite<Line[]>(lines);
        memory.count_ = lines;
      }
    }

    GemmMemory& memory_;
    std::unique_lock<std::mutex> lock_;
  };

  Lease take(int64_t numbers) {
    return Lease(*this, numbers);
  }

 private:
  static constexpr int64_t kNumbers = 16;
  struct alignas(64) Line {
    float numbers[kNumbers];
  };

  std::mutex mutex_;
  std::unique_ptr<Line[]> lines_;
  int64_t count_ = 0;
};

}  // namespace mlxx::kernels
