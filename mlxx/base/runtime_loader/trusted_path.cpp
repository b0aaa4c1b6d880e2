#include "mlxx/base/runtime_loader/trusted_path.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

std::optional<std::string> distrust_one(const fs::path& path, Trust trust) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) {
    return fmt::format("{}: {}", path.string(), std::strerror(errno));
  }
  // Others may add files to a sticky folder such as /tmp but not replace ours,
  // so it is fine above a folder of ours and not as the folder of a library.
  bool sticky = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX);
  if ((info.st_mode & S_IWOTH) && !(sticky && trust == Trust::own)) {
    return fmt::format("{} can be written by every user", path.string());
  }
  if (trust == Trust::named) {
    return std::nullopt;
  }
  if ((info.st_mode & S_IWGRP) && !sticky) {
    return fmt::format(
        "{} can be written by a group (chmod go-w makes it safe)",
        path.string());
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return fmt::format(
        "{} belongs to user {}, not to you or root",
        path.string(),
        info.st_uid);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string>
distrust(const fs::path& path, Trust trust, const fs::path& root) {
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error) {
    return fmt::format("{}: {}", path.string(), error.message());
  }
  if (trust == Trust::named) {
    if (auto reason = distrust_one(real, trust)) {
      return reason;
    }
    return distrust_one(real.parent_path(), trust);
  }
  fs::path real_root = fs::canonical(root, error);
  if (error) {
    return fmt::format("{}: {}", root.string(), error.message());
  }
  for (fs::path part = real;; part = part.parent_path()) {
    if (auto reason = distrust_one(part, trust)) {
      return reason;
    }
    if (part == real_root) {
      return std::nullopt;
    }
    if (part == part.parent_path()) {
      return fmt::format(
          "{} leads out of {}",
          path.string(),
          real_root.string());
    }
  }
}

bool has_raised_privileges() {
#ifdef __linux__
  return getauxval(AT_SECURE) != 0;
#else
  return issetugid() != 0;
#endif
}

}  // namespace mlxx::runtime
