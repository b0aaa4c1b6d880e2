// safetensors_kill TARGET VALUE KIND N: writes a safetensors file of a few
// tensors full of VALUE and ends itself with SIGKILL at a chosen moment.
//   bytes N    when N bytes have been handed to write(), the last call cut
//   there call N     before the Nth (from 0) of the system calls that make the
//   file
//              durable: fsync of the file, rename, fsync of the folder
//   never 0    not at all; prints the names of those calls, one a line
//
// The program's own write(), fsync() and rename() stand before libc's.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "mlxx/core/safetensors_writer.h"

namespace {

int64_t bytes_left = INT64_MAX;
int64_t calls_left = INT64_MAX;
bool is_tracing = false;

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

void count_call(const char* name) {
  if (calls_left-- == 0) {
    die();
  }
  if (is_tracing) {
    std::printf("%s\n", name);
  }
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t size) {
  // Standard output is not the file.
  if (descriptor <= 2) {
    return ::syscall(SYS_write, descriptor, data, size);
  }
  size_t allowed = std::min<size_t>(size, static_cast<size_t>(bytes_left));
  ssize_t n = ::syscall(SYS_write, descriptor, data, allowed);
  bytes_left -= n;
  if (bytes_left == 0) {
    die();
  }
  return n;
}

int fsync(int descriptor) {
  struct stat info{};
  ::fstat(descriptor, &info);
  count_call(S_ISDIR(info.st_mode) ? "fsync folder" : "fsync file");
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) {
  count_call("rename");
  return static_cast<int>(
      ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"

int main(int argc, char** argv) {
  namespace mx = mlxx::mx;
  if (argc != 5) {
    return 2;
  }
  float value = std::strtof(argv[2], nullptr);
  std::string kind = argv[3];
  int64_t n = std::strtoll(argv[4], nullptr, 10);
  if (kind == "bytes") {
    bytes_left = n;
  } else if (kind == "call") {
    calls_left = n;
  } else {
    is_tracing = true;
  }
  mlxx::SafetensorsArrays arrays;
  for (int i = 0; i < 4; ++i) {
    arrays.emplace_back(fmt::format("t{}", i), mx::full({64, 256}, value));
  }
  mlxx::write_safetensors(
      argv[1],
      arrays,
      {{"value", std::to_string(static_cast<int>(value))}});
  return 0;
}
