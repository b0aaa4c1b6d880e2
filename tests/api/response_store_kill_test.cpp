// A server killed in the middle of storing: what it had confirmed is there.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mlxx/api/response_store.h"
#include "mlxx/base/log.h"
#include "tests/core/temporary_folder.h"

extern char** environ;

namespace mlxx::api {
namespace {

constexpr int64_t kNow = 1'800'000'000;
constexpr int kRounds = 5;

// Runs the writer for that long; what it confirmed.
std::vector<int64_t> confirmed_by_killed_writer(
    const std::string& file,
    int64_t first,
    std::chrono::microseconds patience) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::string arguments[] = {
      MLXX_RESPONSE_STORE_KILL,
      file,
      std::to_string(first)};
  char* argv[] = {
      arguments[0].data(),
      arguments[1].data(),
      arguments[2].data(),
      nullptr};
  pid_t child = 0;
  EXPECT_EQ(
      ::posix_spawn(&child, argv[0], &actions, nullptr, argv, environ),
      0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string output;
  char buffer[4096];
  // The clock starts when it writes.
  ssize_t size = ::read(ends[0], buffer, sizeof(buffer));
  std::this_thread::sleep_for(patience);
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  for (; size > 0; size = ::read(ends[0], buffer, sizeof(buffer))) {
    output.append(buffer, static_cast<size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
  std::vector<int64_t> numbers;
  size_t begin = 0;
  for (size_t end; (end = output.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    numbers.push_back(std::stoll(output.substr(begin, end - begin)));
  }
  return numbers;
}

TEST(ResponseStoreKill, ConfirmedResponsesSurvive) {
  TemporaryFolder folder;
  ResponseStoreOptions options;
  options.file = folder.path() / "responses.db";
  std::string warnings;
  set_log_sink([&](LogLevel, std::string_view line) { warnings += line; });
  std::mt19937 random(std::random_device{}());
  std::vector<int64_t> confirmed;
  int64_t next = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::chrono::microseconds patience(random() % 100'000);
    auto numbers = confirmed_by_killed_writer(options.file, next, patience);
    ASSERT_FALSE(numbers.empty());
    confirmed.insert(confirmed.end(), numbers.begin(), numbers.end());
    // What was stored and not confirmed is written again.
    next = numbers.back() / 10 * 10 + 10;
    ResponseStore store(options);
    for (int64_t number : confirmed) {
      std::string name = std::to_string(number);
      auto found = store.find(fmt::format("resp_{}", name), kNow);
      ASSERT_TRUE(found) << "response " << name << " of round " << round
                         << ", killed after " << patience.count() << " us";
      const std::string& text = found->response;
      EXPECT_EQ(
          text.size(),
          static_cast<size_t>(number % 7) * 3000 + name.size());
      EXPECT_TRUE(text.ends_with(name));
      EXPECT_EQ(found->input, name);
      EXPECT_EQ(
          store.conversation(fmt::format("resp_{}", name), kNow).size(),
          static_cast<size_t>(number % 10) + 1);
    }
  }
  EXPECT_EQ(warnings, "");
  set_log_sink({});
}

}  // namespace
}  // namespace mlxx::api
