#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mlxx::runtime {

struct NvidiaDevice {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  uint64_t memory_bytes = 0;
  // False on systems (some Jetsons, some virtual machines) where the CPU may
  // not touch managed memory while the GPU works: MLX is slow or fails there.
  bool concurrent_managed_access = false;
};

struct NvidiaDriver {
  int cuda_version = 0;  // 13010 is CUDA 13.1: the newest the driver can run
  std::vector<NvidiaDevice> devices;  // visible to this process, at least one
};

// Asks the driver library itself; nothing of CUDA's toolkit is needed. Empty
// if there is no driver or no visible device; `why_not` then says which.
std::optional<NvidiaDriver> find_nvidia_driver(std::string* why_not = nullptr);

}  // namespace mlxx::runtime
