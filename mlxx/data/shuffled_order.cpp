#include "mlxx/data/shuffled_order.h"

#include <numeric>
#include <utility>

namespace mlxx::data {
namespace {

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

}  // namespace

ShuffleSource::ShuffleSource(uint64_t seed, uint64_t stream)
    : state_(mixed(mixed(seed) + stream)) {}

uint64_t ShuffleSource::next() {
  state_ += 0x9E3779B97F4A7C15u;
  return mixed(state_);
}

uint64_t ShuffleSource::below(uint64_t bound) {
  // Numbers of the last, incomplete round of `bound` are drawn again.
  uint64_t surplus = (0 - bound) % bound;
  uint64_t number = next();
  while (number < surplus) {
    number = next();
  }
  return number % bound;
}

std::vector<uint32_t> shuffled(uint32_t count, ShuffleSource& source) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[source.below(left)]);
  }
  return order;
}

}  // namespace mlxx::data
