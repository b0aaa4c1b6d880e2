// What the device has, a budget that also holds on a CPU, the wired limit of a
// Mac's GPU, and a part of a large buffer that lets the rest go.

#include <cstdio>
#include <exception>
#include <optional>

#include <mlxx/base/error.h>
#include <mlxx/core/device.h>
#include <mlxx/core/materialize.h>
#include <mlxx/core/memory.h>
#include <mlxx/core/memory_budget.h>
#include <mlxx/core/wired_limit.h>

namespace mx = mlx::core;
constexpr size_t kMiB = size_t{1} << 20;

size_t active_mib() {
  mx::synchronize();
  return mlxx::memory_use().active / kMiB;
}

int main() try {
  mlxx::DeviceInfo device = mlxx::describe_device();
  bool sensible = device.available_bytes > 0 &&
      device.available_bytes <= device.total_bytes &&
      device.working_set_bytes <= device.total_bytes;
  std::printf(
      "device: %s, numbers: %s\n",
      mlxx::to_string(device.backend).data(),
      sensible ? "sensible" : "WRONG");

  // Whoever is about to allocate asks first.
  mlxx::MemoryBudget budget(64 * kMiB);
  mlxx::MemoryBudget for_caches = budget.nested(16 * kMiB);
  bool refused = false;
  {
    auto cache = for_caches.reserve("my cache", 12 * kMiB);
    std::printf("left: %zu MiB\n", budget.available() / kMiB);
    try {
      for_caches.require("another cache", 8 * kMiB);
    } catch (const mlxx::Error& error) {
      refused = error.kind() == mlxx::ErrorKind::out_of_memory;
      std::printf("%s\n", error.what());
    }
  }  // given back here
  std::printf("left: %zu MiB\n", budget.available() / kMiB);

  // Raised on Metal only, and only for weights near the working set; restored
  // whatever happens inside.
  int answer = mlxx::with_wired_limit(2 * kMiB, [] {
    return mx::sum(mx::arange(10, mx::int32)).item<int>();
  });

  // A row of a large array. mx::copy(row) would keep all 32 MiB.
  std::optional<mx::array> large = mx::ones({64, 128 * 1024});
  large->eval();
  mx::array row = mlxx::materialize_copy(mx::take(*large, 3, 0));
  mx::array view = mlxx::materialize_copy(mx::slice(*large, {5, 0}, {6, 1024}));
  mx::eval(row, view);
  size_t with_large = active_mib();
  large.reset();
  size_t without = active_mib();
  std::printf("held: %zu MiB, then %zu MiB\n", with_large, without);
  bool right = sensible && refused && answer == 45 && with_large >= 32 &&
      without <= 1 && budget.reserved() == 0;
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
