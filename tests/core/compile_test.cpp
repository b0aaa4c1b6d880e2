#include "mlxx/core/compile.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"

namespace mlxx {
namespace {

std::vector<mx::array> shifted_square(const std::vector<mx::array>& inputs) {
  return {mx::add(mx::multiply(inputs[0], inputs[0]), mx::array(1.0f))};
}

TEST(Compile, UnknownSettingIsRefused) {
  setenv("MLXX_COMPILE", "quickly", 1);
  try {
    apply_compile_mode();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_STREQ(
        error.what(),
        "[MLXX_COMPILE] must be 'fuse' or 'no_fuse', found 'quickly'");
  }
  unsetenv("MLXX_COMPILE");
}

TEST(Compile, CompiledFunctionsRunWithoutACompilerByDefault) {
  unsetenv("MLXX_COMPILE");
  apply_compile_mode();
  // Fusing would run g++, which an empty PATH hides.
  std::string path = std::getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  auto compiled = mx::compile(shifted_square, true);
  float result = compiled({mx::array(3.0f)})[0].item<float>();
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(result, 10.0f);
}

}  // namespace
}  // namespace mlxx
