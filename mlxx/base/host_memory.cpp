#include "mlxx/base/host_memory.h"

#include <algorithm>

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#include <unistd.h>
#else
#include "mlxx/base/control_groups.h"
#endif

namespace mlxx {

#ifdef __APPLE__

HostMemory host_memory(const std::filesystem::path&) {
  HostMemory memory;
  uint64_t bytes = 0;
  size_t size = sizeof bytes;
  if (sysctlbyname("hw.memsize", &bytes, &size, nullptr, 0) == 0) {
    memory.total_bytes = bytes;
  }
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (host_statistics64(
          mach_host_self(),
          HOST_VM_INFO64,
          reinterpret_cast<host_info64_t>(&pages),
          &count) == KERN_SUCCESS) {
    // Inactive pages are mostly file pages, which are dropped when needed.
    memory.available_bytes = std::min(
        memory.total_bytes,
        (uint64_t{pages.free_count} + pages.inactive_count) *
            static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
  }
  return memory;
}

#else

namespace {

uint64_t kibibytes(std::string_view meminfo, std::string_view key) {
  uint64_t value = number_in_line(meminfo, key).value_or(0);
  return value > UINT64_MAX / 1024 ? 0 : value * 1024;
}

}  // namespace

HostMemory host_memory(const std::filesystem::path& root) {
  HostMemory memory;
  if (auto text = read_kernel_file(root / "proc/meminfo")) {
    memory.total_bytes = kibibytes(*text, "MemTotal");
    memory.available_bytes =
        std::min(memory.total_bytes, kibibytes(*text, "MemAvailable"));
  }
  for (const auto& group : memory_groups(root)) {
    // Version 1 writes a number larger than any machine for "no limit".
    if (memory.total_bytes > 0 && group.limit >= memory.total_bytes) {
      continue;
    }
    memory.limit_bytes = memory.limit_bytes == 0
        ? group.limit
        : std::min(memory.limit_bytes, group.limit);
    uint64_t left = group.limit - std::min(group.used, group.limit);
    memory.available_bytes = std::min(memory.available_bytes, left);
  }
  return memory;
}

#endif

}  // namespace mlxx
