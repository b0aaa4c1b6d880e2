#include "mlxx/core/host_array.h"

#include <algorithm>

namespace mlxx {

HostArray make_host_array(const mx::Shape& shape, mx::Dtype dtype) {
  size_t count = 1;
  for (auto n : shape) {
    count *= static_cast<size_t>(n);
  }
  auto data =
      mx::allocator::malloc(std::max<size_t>(count * mx::size_of(dtype), 1));
  auto* bytes = static_cast<std::byte*>(data.buffer().raw_ptr());
  return {mx::array(std::move(data), shape, dtype), bytes};
}

}  // namespace mlxx
