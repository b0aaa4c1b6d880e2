#include "mlxx/base/runtime_loader/trusted_path.h"

#include <cstring>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <unistd.h>

namespace mlxx::runtime {
namespace {

namespace fs = std::filesystem;

// Any change of the first kilobyte gives a verdict and no crash.
TEST(MalformedLibrary, RandomHeadersAreJudged) {
  std::string name = (fs::temp_directory_path() / "elf-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  fs::path folder = name;
  std::ifstream file(
      fs::path(MLXX_FAKES) / "fake_mlx_same" / "libmlx.so",
      std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string changed = bytes.substr(0, 1024 + random() % 4096);
    for (int j = 0; j < 4; ++j) {
      changed[random() % 1024] = static_cast<char>(random());
    }
    std::ofstream(folder / "a.so", std::ios::binary) << changed;
    refused += malformed_library(folder / "a.so").has_value();
  }
  // All are cut off.
  EXPECT_EQ(refused, 500);
  EXPECT_TRUE(malformed_library("/dev/null"));
  EXPECT_TRUE(malformed_library(folder / "missing"));
  fs::remove_all(folder);
}

TEST(Distrust, RootsOwnFoldersAreTrusted) {
  EXPECT_EQ(distrust("/usr/bin/env", Trust::named), std::nullopt);
  EXPECT_EQ(distrust("/usr/bin/env", Trust::own, "/usr"), std::nullopt);
  EXPECT_TRUE(distrust("/nonexistent/file", Trust::named));
}

}  // namespace
}  // namespace mlxx::runtime
