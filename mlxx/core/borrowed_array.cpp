#include "mlxx/core/borrowed_array.h"

#include <cstdint>
#include <utility>

#include "mlxx/base/error.h"

namespace mlxx {

namespace {

// What MLX's CPU allocator puts before a buffer's bytes: their number.
using Header = size_t;

bool has_cpu_allocator() {
  mx::allocator::Data probe = mx::allocator::malloc(64);
  mx::allocator::Buffer buffer = probe.buffer();
  if (!buffer.ptr()) {
    return false;
  }
  // Other allocators hand out a pointer to a description of the buffer. Reused
  // buffers may be larger than asked for.
  auto* begin = static_cast<std::byte*>(buffer.ptr());
  auto* bytes = static_cast<std::byte*>(buffer.raw_ptr());
  return bytes - begin == sizeof(Header) &&
      *static_cast<const Header*>(buffer.ptr()) ==
      mx::allocator::allocator().size(buffer);
}

}  // namespace

bool can_borrow_memory() {
  static const bool can = has_cpu_allocator();
  return can;
}

std::optional<mx::array> borrow_memory(
    std::shared_ptr<const void> owner,
    const std::byte* data,
    const mx::Shape& shape,
    mx::Dtype dtype) {
  for (auto n : shape) {
    if (n < 0) {
      fail(ErrorKind::internal, "array", "an axis of {} is below zero", n);
    }
  }
  bool is_aligned = reinterpret_cast<uintptr_t>(data) % mx::size_of(dtype) == 0;
  if (!can_borrow_memory() || !is_aligned) {
    return std::nullopt;
  }
  auto* buffer = const_cast<std::byte*>(data) - sizeof(Header);
  mx::allocator::Data borrowed(
      mx::allocator::Buffer(buffer),
      [owner = std::move(owner)](mx::allocator::Buffer) {});
  return mx::array(std::move(borrowed), shape, dtype);
}

}  // namespace mlxx
