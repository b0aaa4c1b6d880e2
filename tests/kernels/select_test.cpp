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
  unsetenv("MLXX_KERNEL");
  setenv("MLXX_CPU", "portable", 1);
  EXPECT_EQ(
      select_from_environment().instruction_set,
      InstructionSet::portable);
  EXPECT_EQ(select_from_environment().activations, ActivationForm::int16);
  for (const char* form : {"fp32", "int16", "int8"}) {
    setenv("MLXX_CPU_ACTIVATIONS", form, 1);
    EXPECT_EQ(to_string(select_from_environment().activations), form);
  }
  unsetenv("MLXX_CPU_ACTIVATIONS");
  unsetenv("MLXX_CPU");
  setenv("MLXX_THREADS", "3", 1);
  EXPECT_EQ(select_from_environment().threads->size(), 3);
  for (const char* bad : {"0", "-1", "2x", "1e3", "99999999999"}) {
    setenv("MLXX_THREADS", bad, 1);
    EXPECT_THROW(select_from_environment(), Error) << bad;
  }
  unsetenv("MLXX_THREADS");
}

TEST(Select, RefusesAGpuThatIsNotThere) {
  for (const char* bad : {"-1", "two", "1x", "99999", "99999999999"}) {
    setenv("MLXX_DEVICE", bad, 1);
    try {
      select_from_environment();
      ADD_FAILURE() << "accepted " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
      EXPECT_NE(
          std::string(error.what()).find("[MLXX_DEVICE]"),
          std::string::npos);
    }
  }
  setenv("MLXX_DEVICE", "0", 1);
  EXPECT_NO_THROW(select_from_environment());
  unsetenv("MLXX_DEVICE");
}

TEST(Select, RefusesAFlagThatIsNone) {
  setenv("MLXX_DETERMINISTIC", "maybe", 1);
  EXPECT_THROW(select_from_environment(), Error);
  setenv("MLXX_DETERMINISTIC", "on", 1);
  EXPECT_TRUE(select_from_environment().deterministic);
  unsetenv("MLXX_DETERMINISTIC");
  EXPECT_FALSE(select_from_environment().deterministic);
}

TEST(Select, NamesWhatItDoesNotKnow) {
  for (const char* variable :
       {"MLXX_KERNEL", "MLXX_CPU", "MLXX_CPU_ACTIVATIONS"}) {
    setenv(variable, "fastest", 1);
    try {
      select_from_environment();
      ADD_FAILURE() << "accepted " << variable;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
      EXPECT_NE(std::string(error.what()).find("'fastest'"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(variable), std::string::npos);
    }
    unsetenv(variable);
  }
}

}  // namespace
}  // namespace mlxx::kernels
