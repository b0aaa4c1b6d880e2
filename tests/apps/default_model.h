#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace mlxx::apps {

// Tests with the default model: what -m gets.
class DefaultModelTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* file = std::getenv("MLXX_TEST_GGUF");
    if (file && *file) {
      model_ = file;
    } else if (!std::getenv("MLXX_HOME")) {
      GTEST_SKIP() << "neither MLXX_TEST_GGUF nor MLXX_HOME is set";
    }
  }

  std::string model_ = "smollm2";
};

}  // namespace mlxx::apps
