#include "mlxx/engine/states_identity.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::engine {
namespace {

namespace fs = std::filesystem;

TEST(StatesIdentity, ChangesWithTheWeightsTheConfigAndTheKernels) {
  TemporaryFolder folder;
  fs::path model = folder.path() / "model";
  std::string weights(1 << 20, 'w');
  auto write = [&](const std::string& name, const std::string& content) {
    fs::path path = folder.write("model/" + name, content);
    fs::last_write_time(path, fs::file_time_type{} + std::chrono::hours(1));
    return path;
  };
  write("a.safetensors", weights);
  write("config.json", "{}");
  std::string first = states_identity(model);
  EXPECT_EQ(states_identity(model), first);
  // What decides nothing.
  write("README.md", "x");
  EXPECT_EQ(states_identity(model), first);
  // A byte of the first sample; the same size and time.
  std::string other = weights;
  other[100] = 'x';
  fs::path path = write("a.safetensors", other);
  std::string second = states_identity(model);
  EXPECT_NE(second, first);
  EXPECT_NE(states_identity(path), first);
  // Where no sample is, the time tells.
  other = weights;
  other[10'000] = 'x';
  write("a.safetensors", other);
  fs::last_write_time(
      path,
      fs::file_time_type{} + std::chrono::hours(1) +
          std::chrono::milliseconds(1));
  EXPECT_NE(states_identity(model), first);
  write("a.safetensors", weights);
  EXPECT_EQ(states_identity(model), first);
  write("config.json", "{ }");
  EXPECT_NE(states_identity(model), first);
  write("config.json", "{}");
  ::setenv("MLXX_KERNEL", "fallback", 1);
  EXPECT_NE(states_identity(model), first);
  ::unsetenv("MLXX_KERNEL");
  EXPECT_EQ(states_identity(model), first);
  EXPECT_THROW(states_identity(folder.path() / "none"), Error);
}

}  // namespace
}  // namespace mlxx::engine
