#include "mlxx/core/capture.h"

#include <gtest/gtest.h>

#include "mlxx/core/mlx.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"

namespace mlxx {
namespace {

// Notes what it is asked for and fails where it is told to.
class FakeDevice : public TraceDevice {
 public:
  std::optional<std::string> obstacle() const override {
    return obstacle_;
  }
  void start(const std::filesystem::path& path) override {
    note("start");
    path_ = path;
  }
  void stop() override {
    note("stop");
  }
  void synchronize() override {
    note("wait");
  }
  void note(const std::string& step) {
    steps_ += steps_.empty() ? step : " " + step;
    if (step == failing_) {
      throw std::runtime_error(step + " is broken");
    }
  }

  std::optional<std::string> obstacle_;
  std::string failing_;
  std::string steps_;
  std::filesystem::path path_;
};

class Capture : public testing::Test {
 protected:
  void run() {
    capture(device_, path_, [this] { device_.note("run"); });
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "a.gputrace";
  FakeDevice device_;
};

TEST_F(Capture, RecordsTheFunctionsWorkOnly) {
  run();
  EXPECT_EQ(device_.steps_, "wait start run wait stop");
  EXPECT_EQ(device_.path_, path_);
}

TEST_F(Capture, TakesRelativePathsFromTheCurrentFolder) {
  path_ = "relative-name.gputrace";
  run();
  EXPECT_EQ(device_.path_, std::filesystem::current_path() / path_);
}

TEST_F(Capture, StopsWhenTheFunctionThrowsWhichComesOutAsItIs) {
  struct Mine {
    int number;
  };
  try {
    capture(device_, path_, [] { throw Mine{7}; });
    FAIL() << "nothing was thrown";
  } catch (const Mine& mine) {
    EXPECT_EQ(mine.number, 7);
  }
  EXPECT_EQ(device_.steps_, "wait start stop");
}

TEST_F(Capture, WhatTheFunctionThrowsCountsMoreThanAFailureToStop) {
  device_.failing_ = "stop";
  EXPECT_THROW(
      capture(device_, path_, [] { throw std::length_error("mine"); }),
      std::length_error);
  EXPECT_EQ(device_.steps_, "wait start stop");
}

TEST_F(Capture, FailuresOfTheDeviceNameTheStep) {
  device_.failing_ = "start";
  EXPECT_ERROR(run(), "internal", "[capture] starting failed: start is broken");
  EXPECT_EQ(device_.steps_, "wait start");  // nothing to stop
  device_.steps_ = "";
  device_.failing_ = "stop";
  EXPECT_ERROR(run(), "internal", "[capture] stopping failed: stop is broken");
  EXPECT_EQ(device_.steps_, "wait start run wait stop");
  device_.steps_ = "";
  device_.failing_ = "wait";
  EXPECT_ERROR(run(), "internal", "[capture] waiting for the GPU failed: wait");
  EXPECT_EQ(device_.steps_, "wait");
}

TEST_F(Capture, AFailureToWaitAtTheEndStopsToo) {
  EXPECT_ERROR(
      capture(device_, path_, [this] { device_.failing_ = "wait"; }),
      "internal",
      "[capture] waiting for the GPU failed: wait is broken");
  EXPECT_EQ(device_.steps_, "wait start wait stop");
}

TEST_F(Capture, RefusesBeforeAnythingRuns) {
  device_.obstacle_ = "no battery";
  EXPECT_ERROR(run(), "unsupported", "[capture] cannot record: no battery");
  device_.obstacle_ = std::nullopt;
  EXPECT_ERROR(
      capture(device_, path_, nullptr),
      "invalid_request",
      "nothing to run");
  auto good = path_;
  for (const char* name : {"a", "a.trace", "a.gputrace.txt", ".gputrace", ""}) {
    path_ = folder_.path() / name;
    EXPECT_ERROR(run(), "invalid_request", "must end in .gputrace, found '");
  }
  path_ = folder_.path() / "no" / "a.gputrace";
  EXPECT_ERROR(run(), "invalid_request", "there is no folder '");
  path_ = folder_.write("file", "") / "a.gputrace";
  EXPECT_ERROR(run(), "invalid_request", "there is no folder '");
  path_ = folder_.write("old.gputrace", "");
  EXPECT_ERROR(run(), "invalid_request", "old.gputrace' exists already");
  path_ = folder_.path() / "link.gputrace";
  std::filesystem::create_symlink(folder_.path() / "nowhere", path_);
  EXPECT_ERROR(run(), "invalid_request", "link.gputrace' exists already");
  path_ = std::string("/tmp/a\0.gputrace", 16);
  EXPECT_ERROR(run(), "invalid_request", "a null byte");
  EXPECT_EQ(device_.steps_, "");
  path_ = good;
  run();
  EXPECT_EQ(device_.steps_, "wait start run wait stop");
}

TEST_F(Capture, MetalsDeviceSaysWhatIsMissing) {
  if (mx::metal::is_available()) {
    ::unsetenv("MTL_CAPTURE_ENABLED");
    EXPECT_ERROR(
        metal_capture(path_, [] { FAIL() << "ran"; }),
        "unsupported",
        "MTL_CAPTURE_ENABLED must be 1");
  } else {
    EXPECT_ERROR(
        metal_capture(path_, [] { FAIL() << "ran"; }),
        "unsupported",
        "[capture] cannot record: this MLX has no Metal");
  }
}

}  // namespace
}  // namespace mlxx
