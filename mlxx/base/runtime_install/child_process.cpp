#include "mlxx/base/runtime_install/child_process.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mlxx/base/error.h"

extern "C" char** environ;

namespace mlxx::runtime {

ChildResult run_program_and_wait(
    const std::vector<std::string>& arguments,
    const std::filesystem::path& log_file) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(
      &actions,
      STDIN_FILENO,
      "/dev/null",
      O_RDONLY,
      0);
  if (log_file.empty()) {
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(
        &actions,
        STDOUT_FILENO,
        log_file.c_str(),
        O_WRONLY | O_CREAT | O_TRUNC,
        0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  pid_t child = 0;
  int error = posix_spawnp(
      &child,
      pointers.front(),
      &actions,
      nullptr,
      pointers.data(),
      environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT || error == EACCES) {
    return {};
  }
  if (error != 0) {
    fail(
        ErrorKind::internal,
        arguments.front(),
        "cannot be started: {}",
        std::strerror(error));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      fail(
          ErrorKind::internal,
          arguments.front(),
          "is lost: {}",
          std::strerror(errno));
    }
  }
  ChildResult result{.started = true};
  result.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace mlxx::runtime
