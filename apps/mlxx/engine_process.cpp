#include "apps/mlxx/engine_process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __APPLE__
#include <crt_externs.h>
#include <mach-o/dyld.h>
#endif

#include "mlxx/base/error.h"

namespace mlxx::apps {

namespace {

// What an engine has to write its states once nobody listens any more.
constexpr std::chrono::seconds kLastWords{10};

std::string this_program() {
#ifdef __APPLE__
  std::string path(4096, '\0');
  auto size = static_cast<uint32_t>(path.size());
  if (_NSGetExecutablePath(path.data(), &size) != 0) {
    fail(ErrorKind::internal, "engine", "the program's path is too long");
  }
  return path.c_str();
#else
  // The very file that runs, even if another has its name by now.
  return "/proc/self/exe";
#endif
}

char** environment_list() {
#ifdef __APPLE__
  return *_NSGetEnviron();
#else
  return environ;
#endif
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {}", WTERMSIG(status));
  }
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

std::string wait_for_end(pid_t child) {
  auto deadline = std::chrono::steady_clock::now() + kLastWords;
  int status = 0;
  for (;;) {
    pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) {
      return how_it_ended(status);
    }
    if (ended < 0 && errno != EINTR) {
      return "ended";
    }
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(child, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Only what is named in `actions` is open in the new process.
void close_the_rest(
    posix_spawn_file_actions_t& actions,
    posix_spawnattr_t& attributes) {
#ifdef __APPLE__
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_CLOEXEC_DEFAULT);
  for (int stream = 0; stream < kEngineDescriptor; ++stream) {
    posix_spawn_file_actions_addinherit_np(&actions, stream);
  }
#else
  static_cast<void>(attributes);
  posix_spawn_file_actions_addclosefrom_np(&actions, kEngineDescriptor + 1);
#endif
}

}  // namespace

server::EngineProcess start_engine_process(
    const std::vector<std::string>& arguments) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
    fail(
        ErrorKind::internal,
        "engine",
        "no socket pair can be made, {}",
        std::strerror(errno));
  }
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  std::vector<std::string> words = {"mlxx"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kEngineDescriptor);
  close_the_rest(actions, attributes);
  pid_t child = 0;
  int error = posix_spawn(
      &child,
      this_program().c_str(),
      &actions,
      &attributes,
      argv.data(),
      environment_list());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    fail(
        ErrorKind::internal,
        "engine",
        "no process can be started, {}",
        std::strerror(error));
  }
  return {ends[0], [child] { return wait_for_end(child); }};
}

}  // namespace mlxx::apps
