#include "mlxx/hub/lock_file.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "mlxx/base/error.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(200);

struct Owner {
  long process = 0;
  std::string start;  // empty if the system does not say
  std::string host;

  bool operator==(const Owner&) const = default;
};

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || !name[0]) {
    return "unknown";
  }
  return name.data();
}

// When a process started, in whatever unit: two processes that had the same
// number at different times differ in it.
std::string start_of_process(long process) {
#ifdef __APPLE__
  int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, static_cast<int>(process)};
  kinfo_proc info{};
  size_t size = sizeof(info);
  if (sysctl(name, 4, &info, &size, nullptr, 0) != 0 || size == 0) {
    return {};
  }
  const timeval& start = info.kp_proc.p_starttime;
  return fmt::format("{}.{:06}", start.tv_sec, start.tv_usec);
#else
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  // The name in parentheses, field 2, may hold blanks. The start is field 22.
  size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    return {};
  }
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) {
    fields >> field;
  }
  return fields ? field : std::string();
#endif
}

std::string text_of(const Owner& owner) {
  return fmt::format(
      "{} {} {}\n",
      owner.process,
      owner.host,
      owner.start.empty() ? "-" : owner.start);
}

Owner this_process() {
  long process = getpid();
  return {process, start_of_process(process), host_name()};
}

std::optional<Owner> read_owner(const fs::path& path) {
  std::ifstream file(path);
  Owner owner;
  if (!(file >> owner.process >> owner.host >> owner.start) ||
      owner.process <= 0) {
    return std::nullopt;
  }
  if (owner.start == "-") {
    owner.start.clear();
  }
  return owner;
}

bool is_dead(const Owner& owner) {
  if (owner.host != host_name()) {
    return false;  // cannot be known from here
  }
  if (kill(static_cast<pid_t>(owner.process), 0) != 0 && errno == ESRCH) {
    return true;
  }
  std::string start = start_of_process(owner.process);
  return !start.empty() && !owner.start.empty() && start != owner.start;
}

fs::path owner_path(const fs::path& path) {
  return path.string() + ".owner";
}

void write_owner(int descriptor) {
  // Only for messages: failing to say so does no harm.
  std::string text = text_of(this_process());
  if (ftruncate(descriptor, 0) == 0) {
    static_cast<void>(pwrite(descriptor, text.data(), text.size(), 0) < 0);
  }
}

[[noreturn]] void fail_to_lock(const fs::path& path) {
  fail(
      ErrorKind::internal,
      path.string(),
      "cannot be locked, {}",
      std::strerror(errno));
}

// Makes the owner file with its content in one step: a link to a finished file
// fails if there is one already.
bool make_owner_file(const fs::path& path) {
  std::string temporary = path.string() + ".XXXXXX";
  int descriptor = mkstemp(temporary.data());
  if (descriptor < 0) {
    fail_to_lock(path);
  }
  write_owner(descriptor);
  close(descriptor);
  int code = link(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
  unlink(temporary.c_str());
  if (code != 0 && code != EEXIST) {
    errno = code;
    fail_to_lock(path);
  }
  return code == 0;
}

// Removes the file of a dead owner. Of several who try, one renames the dead
// one's file away; who moved a living one's instead puts it back.
void remove_dead_owner(const fs::path& path, const Owner& dead) {
  std::string aside = fmt::format("{}.dead.{}", path.string(), getpid());
  if (rename(path.c_str(), aside.c_str()) != 0) {
    return;
  }
  auto moved = read_owner(aside);
  if (moved && !(*moved == dead)) {
    static_cast<void>(link(aside.c_str(), path.c_str()));
  }
  unlink(aside.c_str());
}

bool has_no_flock(int code) {
  return code == ENOSYS || code == EOPNOTSUPP || code == ENOTSUP ||
      code == ENOLCK || code == EINVAL;
}

}  // namespace

std::string lock_owner(const fs::path& path) {
  for (const fs::path& file : {path, owner_path(path)}) {
    if (auto owner = read_owner(file)) {
      return fmt::format("process {} on {}", owner->process, owner->host);
    }
  }
  return "another process";
}

std::optional<LockFile> LockFile::try_lock(
    const fs::path& path,
    Method method) {
  LockFile lock;
  if (method == Method::automatic) {
    while (true) {
      int descriptor =
          open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
      if (descriptor < 0) {
        fail_to_lock(path);
      }
      int code = 0;
      while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        code = errno;
        if (code != EINTR) {
          break;
        }
        code = 0;
      }
      if (code != 0) {
        close(descriptor);
        if (has_no_flock(code)) {
          break;
        }
        if (code == EWOULDBLOCK) {
          return std::nullopt;
        }
        errno = code;
        fail_to_lock(path);
      }
      // The name may meanwhile belong to a new file, which others would lock.
      struct stat held{};
      struct stat named{};
      if (fstat(descriptor, &held) == 0 && stat(path.c_str(), &named) == 0 &&
          held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
        write_owner(descriptor);
        lock.descriptor_ = descriptor;
        return lock;
      }
      close(descriptor);
    }
  }
  fs::path owner_file = owner_path(path);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (make_owner_file(owner_file)) {
      lock.owner_file_ = owner_file;
      return lock;
    }
    auto owner = read_owner(owner_file);
    if (!owner || !is_dead(*owner)) {
      break;
    }
    remove_dead_owner(owner_file, *owner);
  }
  return std::nullopt;
}

LockFile::LockFile(
    const fs::path& path,
    const std::function<void(std::string_view owner)>& on_wait,
    Method method) {
  while (true) {
    if (auto lock = try_lock(path, method)) {
      *this = std::move(*lock);
      return;
    }
    if (on_wait) {
      on_wait(lock_owner(path));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

LockFile::~LockFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
  if (!owner_file_.empty()) {
    unlink(owner_file_.c_str());
  }
}

LockFile::LockFile(LockFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      owner_file_(std::move(other.owner_file_)) {
  other.owner_file_.clear();
}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(owner_file_, other.owner_file_);
  return *this;
}

}  // namespace mlxx::hub
