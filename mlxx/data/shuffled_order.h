#pragma once

#include <cstdint>
#include <vector>

namespace mlxx::data {

// Numbers for shuffling: the same everywhere for the same seed and stream
// (SplitMix64, Steele, Lea and Flood 2014).
class ShuffleSource {
 public:
  ShuffleSource(uint64_t seed, uint64_t stream);

  uint64_t next();
  // In [0, bound), each as likely.
  uint64_t below(uint64_t bound);

 private:
  uint64_t state_;
};

// 0 ... count - 1 in random order (Fisher and Yates).
std::vector<uint32_t> shuffled(uint32_t count, ShuffleSource& source);

}  // namespace mlxx::data
