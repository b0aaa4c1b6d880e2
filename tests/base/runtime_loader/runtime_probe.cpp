// Prints what load_libmlx() did, one "key value" a line: for a test, since a
// process can load only one libmlx.

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "mlxx/base/error.h"
#include "mlxx/base/runtime_loader/blas.h"
#include "mlxx/base/runtime_loader/nvidia_driver.h"
#include "mlxx/base/runtime_loader/runtime_loader.h"

namespace {

void print(std::string_view key, std::string_view value) {
  std::printf(
      "%.*s %.*s\n",
      static_cast<int>(key.size()),
      key.data(),
      static_cast<int>(value.size()),
      value.data());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace mlxx::runtime;
  try {
    if (argc > 1 && std::string_view(argv[1]) == "driver") {
      auto driver = find_nvidia_driver();
      print("devices", driver ? std::to_string(driver->devices.size()) : "0");
      if (driver) {
        print("name", driver->devices[0].name);
        print(
            "managed",
            driver->devices[0].concurrent_managed_access ? "yes" : "no");
      }
      return 0;
    }
    auto runtime = load_libmlx();
    print("libmlx", runtime.libmlx.string());
    print("origin", to_string(runtime.origin));
    print("variant", runtime.variant);
    print("blas", runtime.blas.path.string());
    print("blas_reason", runtime.blas.reason);
    print("blas_in_use", blas_in_use().path.string());
    for (const char* name : {"CUDA_CACHE_PATH", "MLX_PTX_CACHE_DIR"}) {
      const char* value = std::getenv(name);
      print(name, value ? value : "unset");
    }
    for (const auto& passed : runtime.passed_over) {
      print("passed_over", passed.path.string() + " " + passed.problem);
    }
    return 0;
  } catch (const mlxx::Error& error) {
    print("kind", mlxx::to_string(error.kind()));
    print("error", error.what());
    return 1;
  }
}
