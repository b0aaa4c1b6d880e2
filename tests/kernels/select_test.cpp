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
  setenv("MLXX_KERNEL", "portable", 1);
  EXPECT_EQ(
      select_from_environment().instruction_set,
      InstructionSet::portable);
  setenv("MLXX_THREADS", "3", 1);
  EXPECT_EQ(select_from_environment().threads->size(), 3);
  for (const char* bad : {"0", "-1", "2x", "1e3", "99999999999"}) {
    setenv("MLXX_THREADS", bad, 1);
    EXPECT_THROW(select_from_environment(), Error) << bad;
  }
  unsetenv("MLXX_THREADS");
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
