#include "mlxx/kernels/panel_memory.h"

#include <algorithm>
#include <cstdint>

#ifdef __linux__
#include <ctime>

#include <sys/mman.h>
#endif

#include "mlxx/core/mlx.h"

namespace mlxx::kernels {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPiece = size_t{32} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The first aligned address in `data`.
std::byte* align(const mx::allocator::Data& data, size_t unit) {
  mx::allocator::Buffer buffer = data.buffer();
  auto address = reinterpret_cast<uintptr_t>(buffer.raw_ptr());
  return static_cast<std::byte*>(buffer.raw_ptr()) +
      (round_up(address, unit) - address);
}

#ifdef __linux__
double thread_milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) +
      1e-6 * static_cast<double>(now.tv_nsec);
}
#endif

// False if huge pages are no gain here. A virtual machine may have given its
// free memory back to the host, which then fetches it again in small pages:
// 4.5 ms for each huge page, measured, instead of 0.1 ms (the same memory in
// pages of 4 KiB: 0.7 ms). So the first one is tried out.
bool ask_for_huge_pages(std::byte* begin, size_t bytes) {
#ifdef __linux__
  constexpr double kSlow = 1;  // milliseconds
  if (::madvise(begin, kHugePage, MADV_HUGEPAGE) != 0) {
    return false;
  }
  double start = thread_milliseconds();
  *const_cast<volatile std::byte*>(begin) = std::byte{0};
  if (thread_milliseconds() - start > kSlow) {
    return false;
  }
  return ::madvise(begin, bytes / kHugePage * kHugePage, MADV_HUGEPAGE) == 0;
#else
  static_cast<void>(begin);
  static_cast<void>(bytes);
  return false;
#endif
}

}  // namespace

// From MLX's allocator, whose count of active memory then includes it.
class PanelMemory::Piece {
 public:
  Piece(size_t bytes, bool& huge_pages)
      : size_(round_up(bytes, kHugePage)),
        data_(mx::allocator::malloc(size_ + kHugePage)),
        begin_(align(data_, kHugePage)) {
    huge_pages = huge_pages && ask_for_huge_pages(begin_, size_);
  }

  // Null if it does not fit.
  std::byte* cut(size_t bytes) {
    if (bytes > size_ - used_) {
      return nullptr;
    }
    std::byte* at = begin_ + used_;
    used_ = std::min(size_, used_ + round_up(bytes, kAlignment));
    return at;
  }

 private:
  size_t size_;
  size_t used_ = 0;
  mx::allocator::Data data_;
  std::byte* begin_;
};

PanelMemory::PanelMemory(size_t expected) : expected_(expected) {}

PanelMemory::~PanelMemory() = default;

std::shared_ptr<std::byte> PanelMemory::take(size_t bytes) {
  std::byte* at = piece_ ? piece_->cut(bytes) : nullptr;
  if (!at) {
    size_t size = std::max(bytes, std::min(expected_, kPiece));
    piece_ = std::make_shared<Piece>(size, huge_pages_);
    at = piece_->cut(bytes);
  }
  expected_ -= std::min(expected_, bytes);
  return {piece_, at};
}

std::shared_ptr<std::byte> take_panel_memory(size_t bytes) {
  if (bytes >= 4 * kHugePage) {
    return PanelMemory(bytes).take(bytes);
  }
  auto data = std::make_shared<mx::allocator::Data>(
      mx::allocator::malloc(bytes + kAlignment));
  std::byte* at = align(*data, kAlignment);
  return {std::move(data), at};
}

}  // namespace mlxx::kernels
