#include "mlxx/core/compile_mode.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/paths.h"
#include "mlxx/core/mlx.h"

namespace mlxx {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPlace = "MLXX_COMPILE";

// MLX puts the path between double quotes into a shell command.
void require_plain_path(const fs::path& path) {
  for (char c : path.string()) {
    auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F || std::strchr("\"$`\\!", c)) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "cannot fuse in {}: the compiler is run by a shell, which would "
          "interpret the character '{}'; set MLXX_HOME to another folder",
          path.string(),
          c);
    }
  }
}

void make_private(const fs::path& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    fail(
        ErrorKind::internal,
        kPlace,
        "cannot make the folder {}: {}",
        path.string(),
        std::strerror(errno));
  }
  struct stat info{};
  // lstat: a link that someone else put there is not our folder.
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "refuses to load compiled code from {}: it is not a folder that "
        "belongs to you alone (mode 0700)",
        path.string());
  }
}

// Of processes that ended without cleaning up: their lock is free.
void remove_abandoned(const fs::path& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with("process-")) {
      continue;
    }
    int lock = open((entry.path() / "lock").c_str(), O_RDWR | O_CLOEXEC);
    if (lock < 0) {
      continue;
    }
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
    close(lock);
  }
}

std::vector<mx::array> probe(const std::vector<mx::array>& inputs) {
  return {mx::add(mx::multiply(inputs[0], inputs[0]), inputs[0])};
}

// One fused function, to see whether the compiler does its work. It is dropped
// again, so that a compiler that broke since last time is noticed here and not
// in the middle of an answer.
bool compiler_works(CompileFolder& folder) {
  try {
    mx::set_compile_mode(mx::CompileMode::enabled);
    mx::StreamContext on_cpu(mx::Device::cpu);
    auto fused = mx::compile(probe);
    mx::array values = fused({mx::array({3.0f, 4.0f})})[0];
    float result = mx::sum(values).item<float>();
    if (result != 32.0f) {
      log_warning(
          "[{}] a fused function gave {} instead of 32, so nothing is fused",
          kPlace,
          result);
      return false;
    }
    // Without a g++ MLX leaves functions as they are.
    if (!folder.drop_libraries()) {
      log_warning("[{}] there is no g++ on PATH, so nothing is fused", kPlace);
      return false;
    }
    return true;
  } catch (const std::exception& error) {
    // What it wrote must not be kept.
    folder.drop_libraries();
    log_warning(
        "[{}] g++ fails, so nothing is fused: {}",
        kPlace,
        Error(ErrorKind::internal, error.what()).what());
    return false;
  }
}

std::unique_ptr<CompileFolder> make_compile_folder() {
  try {
    return std::make_unique<CompileFolder>(
        make_folder(mlxx_home()) / "compile");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::invalid_request) {
      throw;
    }
    log_info("{}", error.what());
  }
  std::error_code error;
  fs::path temporary = fs::temp_directory_path(error);
  if (error) {
    return nullptr;
  }
  // With the user's number: each user needs an own one there.
  return std::make_unique<CompileFolder>(
      temporary / ("mlxx-compile-" + std::to_string(geteuid())));
}

bool start_fusing() {
  // Removed when the process ends, after the last compiled function has run.
  static std::unique_ptr<CompileFolder> folder;
  try {
    folder = make_compile_folder();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::invalid_request) {
      throw;
    }
    log_warning("{}, so nothing is fused", error.what());
  }
  if (!folder) {
    return false;
  }
  setenv("TMPDIR", folder->path().c_str(), 1);
  if (!compiler_works(*folder)) {
    return false;
  }
  folder->take_kept();
  return true;
}

}  // namespace

CompileFolder::CompileFolder(const fs::path& parent) {
  require_plain_path(parent);
  make_private(parent);
  remove_abandoned(parent);
  std::string name = (parent / "process-XXXXXX").string();
  if (!mkdtemp(name.data())) {
    fail(
        ErrorKind::internal,
        kPlace,
        "cannot make a folder in {}: {}",
        parent.string(),
        std::strerror(errno));
  }
  path_ = name;
  lock_ = open(
      (path_ / "lock").c_str(),
      O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
      0600);
  if (lock_ >= 0) {
    flock(lock_, LOCK_EX | LOCK_NB);
  }
  libraries_ = path_ / "mlx" / mx::version() / "cpu";
  for (const fs::path& folder :
       {path_ / "mlx", path_ / "mlx" / mx::version(), libraries_}) {
    make_private(folder);
  }
  kept_ = parent / (std::string("kept-") + mx::version());
  make_private(kept_);
}

CompileFolder::~CompileFolder() {
  link_libraries(libraries_, kept_);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) {
    close(lock_);
  }
}

void CompileFolder::take_kept() {
  link_libraries(kept_, libraries_);
}

bool CompileFolder::drop_libraries() {
  bool found = false;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(libraries_, error)) {
    found = found || entry.path().extension() == ".so";
    std::error_code ignored;
    fs::remove(entry.path(), ignored);
  }
  return found;
}

void CompileFolder::link_libraries(const fs::path& from, const fs::path& to)
    const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(from, error)) {
    std::error_code ignored;
    if (entry.path().extension() == ".so" && entry.is_regular_file(ignored)) {
      // One that is there already stays: it is the same function.
      fs::create_hard_link(entry.path(), to / entry.path().filename(), ignored);
    }
  }
}

bool prepare_fusing() {
  static const bool works = start_fusing();
  return works;
}

}  // namespace mlxx
