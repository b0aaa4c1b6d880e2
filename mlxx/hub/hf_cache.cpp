#include "mlxx/hub/hf_cache.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <unistd.h>

#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/paths.h"
#include "mlxx/hub/content_hash.h"
#include "mlxx/hub/model_name.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kModelPrefix = "models--";
constexpr size_t kMaxRef = 128;
constexpr size_t kMinCommitDigits = 4;

// org/name -> models--org--name.
std::string folder_name(const std::string& repo) {
  std::string name(kModelPrefix);
  for (char c : repo) {
    if (c == '/') {
      name += "--";
    } else {
      name += c;
    }
  }
  return name;
}

// The commit in a ref's file; nothing if it holds another thing.
std::optional<std::string> read_ref(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error) ||
      fs::file_size(file, error) > kMaxRef || error) {
    return std::nullopt;
  }
  std::string commit = read_file(file, kMaxRef);
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r')) {
    commit.pop_back();
  }
  return is_commit(commit) ? std::optional(commit) : std::nullopt;
}

[[noreturn]] void fail_to_write(const fs::path& path, int code) {
  fail(
      ErrorKind::internal,
      path.string(),
      "cannot be made, {}",
      std::strerror(code));
}

// ../../blobs/HASH, with one more .. for each folder inside the name.
fs::path link_target(const std::string& name, const std::string& hash) {
  fs::path target = "../..";
  for (char c : name) {
    if (c == '/') {
      target /= "..";
    }
  }
  return target / "blobs" / hash;
}

}  // namespace

bool is_commit(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) && is_hex(text);
}

RepoCache::RepoCache(fs::path cache, const std::string& repo)
    : cache_(std::move(cache)),
      folder_(cache_ / folder_name(repo)),
      lock_folder_(cache_ / ".locks" / folder_name(repo)) {}

fs::path RepoCache::blob(const std::string& hash) const {
  return folder_ / "blobs" / hash;
}

fs::path RepoCache::blob_lock(const std::string& hash) const {
  return lock_folder_ / (hash + ".lock");
}

fs::path RepoCache::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

std::optional<std::string> RepoCache::find_commit(
    const std::string& revision) const {
  if (!is_safe_file_name(revision)) {
    return std::nullopt;
  }
  if (auto commit = read_ref(folder_ / "refs" / revision)) {
    return commit;
  }
  if (!is_hex(revision) || revision.size() < kMinCommitDigits) {
    return std::nullopt;
  }
  std::optional<std::string> found;
  for (const std::string& commit : commits()) {
    if (commit.starts_with(revision)) {
      if (found) {
        return std::nullopt;
      }
      found = commit;
    }
  }
  return found;
}

std::vector<std::string> RepoCache::refs_of(const std::string& commit) const {
  std::vector<std::string> names;
  fs::path refs = folder_ / "refs";
  std::error_code error;
  for (fs::recursive_directory_iterator at(refs, error), end;
       !error && at != end;
       at.increment(error)) {
    if (read_ref(at->path()) == commit) {
      names.push_back(at->path().lexically_relative(refs).generic_string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> RepoCache::commits() const {
  std::vector<std::string> commits;
  std::error_code error;
  for (fs::directory_iterator at(folder_ / "snapshots", error), end;
       !error && at != end;
       at.increment(error)) {
    std::string name = at->path().filename().string();
    std::error_code ignored;
    if (is_commit(name) && at->is_directory(ignored)) {
      commits.push_back(name);
    }
  }
  std::sort(commits.begin(), commits.end());
  return commits;
}

void RepoCache::make_folders() const {
  make_folder(folder_ / "blobs");
  make_folder(folder_ / "refs");
  make_folder(folder_ / "snapshots");
  make_folder(lock_folder_);
  // https://bford.info/cachedir: backups leave such a folder out.
  fs::path tag = cache_ / "CACHEDIR.TAG";
  std::error_code error;
  if (!fs::exists(tag, error)) {
    write_file_atomically(
        tag,
        "Signature: 8a477f597d28d172789f06886806bc55\n"
        "# This file is a cache directory tag created by mlxx.\n"
        "# For information about cache directory tags, see:\n"
        "#\thttps://bford.info/cachedir/\n");
  }
}

void RepoCache::link(
    const std::string& commit,
    const std::string& name,
    const std::string& hash) const {
  fs::path path = snapshot(commit) / name;
  fs::path target = link_target(name, hash);
  std::error_code error;
  if (fs::read_symlink(path, error) == target && !error) {
    return;
  }
  make_folder(path.parent_path());
  // Made aside and renamed, as a link cannot replace a file.
  fs::path temporary = path.string() + fmt::format(".{}.link", getpid());
  unlink(temporary.c_str());
  if (symlink(target.c_str(), temporary.c_str()) != 0) {
    fail_to_write(path, errno);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    int code = errno;
    unlink(temporary.c_str());
    fail_to_write(path, code);
  }
}

void RepoCache::write_ref(
    const std::string& revision,
    const std::string& commit) const {
  fs::path path = folder_ / "refs" / revision;
  if (revision == commit || read_ref(path) == commit) {
    return;
  }
  make_folder(path.parent_path());
  write_file_atomically(path, commit);
}

std::vector<std::string> cached_repos(const fs::path& cache) {
  std::vector<std::string> repos;
  std::error_code error;
  for (fs::directory_iterator at(cache, error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().filename().string();
    std::error_code ignored;
    if (!name.starts_with(kModelPrefix) || !at->is_directory(ignored)) {
      continue;
    }
    name.erase(0, kModelPrefix.size());
    size_t dashes = name.find("--");
    repos.push_back(
        dashes == std::string::npos
            ? name
            : name.substr(0, dashes) + '/' + name.substr(dashes + 2));
  }
  std::sort(repos.begin(), repos.end());
  return repos;
}

}  // namespace mlxx::hub
