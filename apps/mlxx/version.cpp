#include "apps/mlxx/version.h"

#include <fmt/format.h>

#include "mlxx/core/mlx.h"
#include "mlxx_build_info.h"

namespace mlxx::apps {

namespace {

// What the running libmlx brings, which may be another variant than the one
// that mlxx was built against.
std::string features() {
  std::string list = "gguf safetensors";
  list += mx::metal::is_available() ? " +metal" : " -metal";
  list += mx::cu::is_available() ? " +cuda" : " -cuda";
  return list;
}

}  // namespace

std::string version_text() {
  return fmt::format(
      "mlxx {} (commit {})\nMLX {}\nfeatures: {}\ncompiler: {}, {}\n",
      kBuildVersion,
      kBuildCommit,
      mx::version(),
      features(),
      kBuildCompiler,
      kBuildType);
}

}  // namespace mlxx::apps
