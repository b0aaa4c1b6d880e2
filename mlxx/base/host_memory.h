#pragma once

#include <cstdint>
#include <filesystem>

namespace mlxx {

// The machine's memory as this process may use it, in bytes.
struct HostMemory {
  uint64_t total_bytes = 0;      // of the machine
  uint64_t available_bytes = 0;  // without swapping, within every limit
  uint64_t limit_bytes = 0;      // of the container; 0 if there is none

  // What the process can have at most.
  uint64_t usable_bytes() const {
    return limit_bytes > 0 ? limit_bytes : total_bytes;
  }
};

// Read anew at each call; 0 where the system does not say. `root` is the folder
// that holds proc/ and sys/: another one for tests. Never fails: what cannot be
// read or understood there is as if it were missing.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace mlxx
