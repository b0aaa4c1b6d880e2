#pragma once

#include <cstdint>
#include <filesystem>

namespace mlxx::runtime {

struct ExtractLimits {
  uint64_t max_bytes = uint64_t{16} << 30;  // unpacked, all files together
  uint64_t max_entries = 200000;
};

// Unpacks a wheel (a zip) into `folder`, which exists. bad_file, naming the
// entry, for one that would land outside of it, that is no plain file or
// folder, that comes twice, or is damaged; and for more than the limits.
// Python sources are left out. What was written until then stays: use a folder
// that can be thrown away.
void extract_wheel(
    const std::filesystem::path& wheel,
    const std::filesystem::path& folder,
    const ExtractLimits& limits = {});

}  // namespace mlxx::runtime
