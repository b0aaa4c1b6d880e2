// The default model: what stays in memory is hardly more than the file.
#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "mlxx/base/environment.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/models/model.h"

namespace mlxx::models {
namespace {

size_t resident_bytes() {
  size_t total = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(ResidentMemory, IsAboutTheSizeOfTheFile) {
  auto path = environment("MLXX_TEST_GGUF");
  if (!path && !environment("MLXX_HOME")) {
    GTEST_SKIP() << "neither MLXX_TEST_GGUF nor MLXX_HOME is set";
  }
  auto checkpoint = hub::open_checkpoint(
      path ? std::filesystem::path(*path)
           : hub::resolve_model(hub::kDefaultModel));
  size_t limit = checkpoint->file_bytes() / 4 * 5 + (size_t{80} << 20);
  auto model = load_model(*checkpoint);
  EXPECT_LE(resident_bytes(), limit);
  EXPECT_LE(
      model->summary().weight_bytes,
      checkpoint->file_bytes() / 100 * 105);

  // The first tokens add the state and little else.
  auto cache = model->make_cache({});
  int ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
  mx::eval(model->forward_last(mx::array(ids, {1, 8}, mx::int32), cache));
  EXPECT_LE(resident_bytes(), limit + (size_t{40} << 20));
}

}  // namespace
}  // namespace mlxx::models
