#include "mlxx/kernels/select.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"

namespace mlxx::kernels {
namespace {

TEST(Select, ReadsTheEnvironment) {
  unsetenv("MLXX_KERNEL");
  EXPECT_FALSE(select_from_environment().fallback);
  setenv("MLXX_KERNEL", "auto", 1);
  EXPECT_FALSE(select_from_environment().fallback);
  setenv("MLXX_KERNEL", "fallback", 1);
  EXPECT_TRUE(select_from_environment().fallback);
  setenv("MLXX_KERNEL", "fastest", 1);
  try {
    select_from_environment();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_NE(std::string(error.what()).find("'fastest'"), std::string::npos);
  }
  unsetenv("MLXX_KERNEL");
}

}  // namespace
}  // namespace mlxx::kernels
