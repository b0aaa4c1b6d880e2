#pragma once

#include <string>
#include <vector>

namespace mlxx::apps {

struct SelftestCheck {
  std::string name;
  bool passed = false;
  std::string detail;  // the worst error found, or what was thrown
};

// Runs known products on the default device with the kernels that models would
// use, and compares them with plain operations in float32: matmul, quantized
// matmul over sizes, bits and modes, and attention. Seconds, no model needed.
std::vector<SelftestCheck> run_selftest();

}  // namespace mlxx::apps
