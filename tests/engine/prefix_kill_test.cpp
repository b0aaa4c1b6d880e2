// A process that keeps states on disk is killed at any moment: the next one
// finds all that had been confirmed.
#include <chrono>
#include <cstdlib>
#include <random>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "mlxx/base/mapped_file.h"
#include "mlxx/engine/prefix_cache.h"
#include "tests/core/temporary_folder.h"
#include "tests/engine/marked_prompt.h"

namespace mlxx::engine {
namespace {

// MLXX_KILLS, else 5.
int kills() {
  const char* count = std::getenv("MLXX_KILLS");
  return count ? std::atoi(count) : 5;
}

pid_t start(
    const std::filesystem::path& folder,
    unsigned first,
    const std::filesystem::path& output) {
  std::string arguments[] = {
      MLXX_PREFIX_KILL,
      folder.string(),
      std::to_string(first)};
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
      output.c_str(),
      O_WRONLY | O_CREAT | O_TRUNC,
      0600);
  pid_t pid = -1;
  EXPECT_EQ(
      ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ),
      0);
  ::posix_spawn_file_actions_destroy(&actions);
  return pid;
}

TEST(PrefixKill, WhatWasConfirmedIsThereAfterIt) {
  TemporaryFolder folder;
  auto prompts = folder.path() / "prompts";
  auto output = folder.path() / "output";
  std::mt19937 random(9);
  unsigned confirmed = 0;
  for (int round = 0; round < kills(); ++round) {
    // The one that was being written when the last process died, too.
    unsigned first = confirmed;
    pid_t pid = start(prompts, first, output);
    // Until it is at work, then some more.
    for (int i = 0; i < 10'000; ++i) {
      std::error_code none;
      if (std::filesystem::file_size(output, none) > 0 && !none) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    ::kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    std::istringstream lines(read_file(output));
    for (std::string line; std::getline(lines, line);) {
      // The newline is written with the number.
      confirmed = static_cast<unsigned>(std::stoul(line)) + 1;
    }
    ASSERT_GT(confirmed, first);

    PrefixCache prefixes({.folder = prompts});
    prefixes.keep_on_disk("m", "weights", empty_marked_caches);
    for (unsigned i = 0; i < confirmed; ++i) {
      auto tokens = marked_tokens(i, 128);
      auto longer = tokens;
      longer.push_back(1);
      auto hit = prefixes.find("m", longer);
      ASSERT_TRUE(hit) << i;
      ASSERT_EQ(hit->tokens, 128);
      ASSERT_TRUE(are_marked(hit->caches, tokens, 1024)) << i;
    }
    EXPECT_EQ(prefixes.stats().disk_refused, 0u);
    EXPECT_EQ(prefixes.stats().disk_problem, "");
  }
}

}  // namespace
}  // namespace mlxx::engine
