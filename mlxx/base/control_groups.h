#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx {

// One control group (Linux) that bounds this process's memory, in bytes.
struct MemoryGroup {
  uint64_t limit;  // the lower of the hard and the throttling limit
  uint64_t used;   // without file pages that the system drops when it must
};

// The groups with a limit that this process is in, from its own up to the
// outermost that can be seen, of version 2 (memory.max, memory.high,
// memory.current) and 1 (memory.limit_in_bytes, memory.usage_in_bytes). Empty
// where there are none. Files that hold anything but a number, "max" included,
// set no limit. `root` as for host_memory().
std::vector<MemoryGroup> memory_groups(const std::filesystem::path& root);

// The first megabyte of a file of /proc or /sys, whose size is not known
// beforehand; absent if it cannot be read.
std::optional<std::string> read_kernel_file(const std::filesystem::path& path);

// The number after `key`, white space and perhaps a colon, in lines such as
// "MemTotal:  16 kB" and "inactive_file 4096", without its unit.
std::optional<uint64_t> number_in_line(
    std::string_view text,
    std::string_view key);

}  // namespace mlxx
