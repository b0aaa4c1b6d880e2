#include "tests/apps/child_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mlxx::apps {

namespace {

constexpr int kMaxSeconds = 60;

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw std::runtime_error(std::strerror(errno));
    }
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read_end >= 0) {
      close(std::exchange(read_end, -1));
    }
  }
  void close_write() {
    if (write_end >= 0) {
      close(std::exchange(write_end, -1));
    }
  }
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

// In the child: never returns.
[[noreturn]] void become_mlxx(
    const ChildOptions& options,
    const Pipe& input,
    const Pipe& output,
    const Pipe& errors,
    char** arguments,
    char** environment) {
  dup2(input.read_end, STDIN_FILENO);
  dup2(errors.write_end, STDERR_FILENO);
  if (options.stdout_path.empty() || options.stdout_path == kClosedPipe) {
    dup2(output.write_end, STDOUT_FILENO);
  } else {
    int file = open(options.stdout_path.c_str(), O_WRONLY);
    if (file < 0) {
      _exit(99);
    }
    dup2(file, STDOUT_FILENO);
  }
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  alarm(kMaxSeconds);
  execve(MLXX_BINARY, arguments, environment);
  _exit(99);
}

// Appends what is there; false at the end of the stream.
bool read_some(int descriptor, std::string& text) {
  char buffer[1 << 14];
  ssize_t count = read(descriptor, buffer, sizeof(buffer));
  if (count > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return count > 0 || (count < 0 && errno == EINTR);
}

// Feeds stdin and collects the outputs until both have ended.
void exchange_data(
    const ChildOptions& options,
    pid_t child,
    Pipe& input,
    Pipe& output,
    Pipe& errors,
    ChildResult& result) {
  size_t written = 0;
  bool interrupted = false;
  while (output.read_end >= 0 || errors.read_end >= 0) {
    if (input.write_end >= 0 && written == options.input.size()) {
      input.close_write();
    }
    pollfd polled[3] = {
        {output.read_end, POLLIN, 0},
        {errors.read_end, POLLIN, 0},
        {input.write_end, POLLOUT, 0}};
    if (poll(polled, 3, -1) < 0) {
      continue;
    }
    if (polled[0].revents && !read_some(output.read_end, result.out)) {
      output.close_read();
    }
    if (polled[1].revents && !read_some(errors.read_end, result.err)) {
      errors.close_read();
    }
    if (polled[2].revents) {
      ssize_t count = write(
          input.write_end,
          options.input.data() + written,
          options.input.size() - written);
      if (count < 0) {
        input.close_write();
      } else {
        written += static_cast<size_t>(count);
      }
    }
    if (!interrupted && options.interrupt_after >= 0 &&
        result.out.size() >= static_cast<size_t>(options.interrupt_after)) {
      interrupted = true;
      kill(child, SIGINT);
    }
  }
}

}  // namespace

std::vector<std::string> child_environment(
    const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> variables;
  for (const char* name :
       {"PATH",
        "HOME",
        "MLXX_HOME",
        "MLXX_LIBMLX",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "ASAN_OPTIONS",
        "UBSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) {
      variables[name] = value;
    }
  }
  variables["LC_ALL"] = "C.UTF-8";
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) {
    if (!value.empty()) {
      out.push_back(name + "=" + value);
    }
  }
  return out;
}

ChildResult run_mlxx(const ChildOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> arguments{"mlxx"};
  arguments.insert(
      arguments.end(),
      options.arguments.begin(),
      options.arguments.end());
  auto environment = child_environment(options.environment);
  auto argument_pointers = pointers(arguments);
  auto environment_pointers = pointers(environment);
  Pipe input;
  Pipe output;
  Pipe errors;
  if (options.stdout_path == kClosedPipe) {
    output.close_read();
  }
  pid_t child = fork();
  if (child == 0) {
    become_mlxx(
        options,
        input,
        output,
        errors,
        argument_pointers.data(),
        environment_pointers.data());
  }
  if (child < 0) {
    throw std::runtime_error(std::strerror(errno));
  }
  input.close_read();
  output.close_write();
  errors.close_write();
  ChildResult result{};
  exchange_data(options, child, input, output, errors, result);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

ChildResult run_mlxx(std::vector<std::string> arguments) {
  ChildOptions options;
  options.arguments = std::move(arguments);
  return run_mlxx(options);
}

bool is_error_line(const std::string& text) {
  return text.starts_with("mlxx: error: ") && text.ends_with('\n') &&
      std::count(text.begin(), text.end(), '\n') == 1 &&
      std::none_of(text.begin(), text.end() - 1, [](unsigned char c) {
           return c < 0x20 || c == 0x7F;
         });
}

}  // namespace mlxx::apps
