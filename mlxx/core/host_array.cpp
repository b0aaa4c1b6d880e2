#include "mlxx/core/host_array.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <sys/mman.h>

#include "mlxx/base/error.h"

namespace mlxx {

namespace {

// Below this an allocation is not asked for twice.
constexpr size_t kLargeBytes = size_t{1} << 30;
// MLX adds a little of its own.
constexpr size_t kMaxBytes = std::numeric_limits<ptrdiff_t>::max() / 2;

[[noreturn]] void fail_without_memory(size_t nbytes) {
  fail(
      ErrorKind::out_of_memory,
      "memory",
      "the system has no {} bytes for an array",
      nbytes);
}

}  // namespace

HostBuffer make_host_buffer(size_t nbytes) {
  if (nbytes > kMaxBytes) {
    fail_without_memory(nbytes);
  }
  if (nbytes >= kLargeBytes) {
    // Only address space: the system gives pages when they are touched. Not
    // malloc(), which the compiler may drop together with free().
    void* probe = ::mmap(
        nullptr,
        nbytes,
        PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS,
        -1,
        0);
    if (probe == MAP_FAILED) {
      fail_without_memory(nbytes);
    }
    ::munmap(probe, nbytes);
  }
  auto data = mx::allocator::malloc(std::max<size_t>(nbytes, 1));
  auto* bytes = static_cast<std::byte*>(data.buffer().raw_ptr());
  if (!bytes) {
    fail_without_memory(nbytes);
  }
  return {std::move(data), bytes};
}

HostArray make_host_array(const mx::Shape& shape, mx::Dtype dtype) {
  size_t nbytes = mx::size_of(dtype);
  bool overflow = false;
  for (auto n : shape) {
    if (n < 0) {
      fail(ErrorKind::internal, "array", "an axis of {} is below zero", n);
    }
    overflow |= __builtin_mul_overflow(nbytes, static_cast<size_t>(n), &nbytes);
  }
  HostBuffer buffer =
      make_host_buffer(overflow ? std::numeric_limits<size_t>::max() : nbytes);
  return {mx::array(std::move(buffer.data), shape, dtype), buffer.bytes};
}

}  // namespace mlxx
