// What a writer that is killed leaves: the old file or the new one, whole.
#include <chrono>
#include <random>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "mlxx/base/mapped_file.h"
#include "mlxx/core/safetensors.h"
#include "tests/core/temporary_folder.h"

namespace mlxx {
namespace {

class SafetensorsKill : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(finish(start(1, "never", 0)), 0);
    ASSERT_EQ(value_found(), 1);
  }

  pid_t start(int value, const std::string& kind, int64_t n) {
    std::string arguments[] = {
        MLXX_SAFETENSORS_KILL,
        target_.string(),
        std::to_string(value),
        kind,
        std::to_string(n)};
    std::vector<char*> argv;
    for (auto& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(
        &actions,
        STDOUT_FILENO,
        calls_.c_str(),
        O_WRONLY | O_CREAT | O_TRUNC,
        0600);
    pid_t pid = -1;
    EXPECT_EQ(
        ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ),
        0);
    ::posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  // The exit code, or minus the signal.
  static int finish(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

  // The value that every element of the target has; -1 if it is not whole.
  int value_found() {
    SafetensorsFile file(target_);
    int value = std::stoi(file.metadata().at("value"));
    if (file.entries().size() != 4) {
      return -1;
    }
    for (const auto& entry : file.entries()) {
      mx::array expected = mx::full({64, 256}, static_cast<float>(value));
      if (!mx::array_equal(file.load(entry), expected).item<bool>()) {
        return -1;
      }
    }
    return value;
  }

  TemporaryFolder folder_;
  TemporaryFolder calls_folder_;
  std::filesystem::path target_ = folder_.path() / "model.safetensors";
  std::filesystem::path calls_ = calls_folder_.path() / "calls";
};

TEST_F(SafetensorsKill, FileThenNameThenFolderAreMadeDurable) {
  EXPECT_EQ(read_file(calls_), "fsync file\nrename\nfsync folder\n");
}

TEST_F(SafetensorsKill, AfterAnyNumberOfBytesTheOldFileIsThere) {
  auto size = static_cast<int64_t>(std::filesystem::file_size(target_));
  for (int i = 0; i < 16; ++i) {
    // From the first byte to the last.
    int64_t bytes = 1 + i * (size - 1) / 15;
    ASSERT_EQ(finish(start(2, "bytes", bytes)), -SIGKILL) << bytes;
    ASSERT_EQ(value_found(), 1) << bytes;
  }
}

TEST_F(SafetensorsKill, TheRenameDecidesWhichFileIsThere) {
  int expected[] = {1, 1, 2};
  for (int call = 0; call < 3; ++call) {
    ASSERT_EQ(finish(start(2, "call", call)), -SIGKILL) << call;
    EXPECT_EQ(value_found(), expected[call]) << call;
  }
}

TEST_F(SafetensorsKill, WhateverAKillInterrupts) {
  std::minstd_rand random(4);
  int old_value = 1;
  for (int i = 2; i < 12; ++i) {
    pid_t pid = start(i, "never", 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
    ::kill(pid, SIGKILL);
    finish(pid);
    int found = value_found();
    EXPECT_TRUE(found == old_value || found == i) << found;
    old_value = found;
  }
}

}  // namespace
}  // namespace mlxx
