#include "mlxx/kernels/panel_memory.h"

#include <algorithm>
#include <cstdint>

#ifdef __linux__
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

// A hint: without huge pages the memory is merely slower.
void ask_for_huge_pages(std::byte* begin, size_t bytes) {
#ifdef __linux__
  ::madvise(begin, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#else
  static_cast<void>(begin);
  static_cast<void>(bytes);
#endif
}

}  // namespace

// From MLX's allocator, whose count of active memory then includes it.
class PanelMemory::Piece {
 public:
  explicit Piece(size_t bytes)
      : size_(round_up(bytes, kHugePage)),
        data_(mx::allocator::malloc(size_ + kHugePage)),
        begin_(align(data_, kHugePage)) {
    ask_for_huge_pages(begin_, size_);
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
    piece_ = std::make_shared<Piece>(size);
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
