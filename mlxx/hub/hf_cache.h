#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mlxx::hub {

// One repository in Hugging Face's cache, laid out as huggingface_hub does:
//   models--org--repo/blobs/HASH               contents
//   models--org--repo/refs/main                "main" -> commit
//   models--org--repo/snapshots/COMMIT/NAME    link to ../../blobs/HASH
//   .locks/models--org--repo/HASH.lock         held while a blob is made
class RepoCache {
 public:
  RepoCache(std::filesystem::path cache, const std::string& repo);

  const std::filesystem::path& folder() const {
    return folder_;
  }
  const std::filesystem::path& lock_folder() const {
    return lock_folder_;
  }
  std::filesystem::path blob(const std::string& hash) const;
  std::filesystem::path blob_lock(const std::string& hash) const;
  std::filesystem::path snapshot(const std::string& commit) const;

  // The commit that a revision names here: by its ref, or as a commit in full
  // or its first digits (4 or more, if only one fits). Reads names that may
  // come from anybody; never leaves the folder.
  std::optional<std::string> find_commit(const std::string& revision) const;

  // Names of branches and tags that point to the commit, sorted.
  std::vector<std::string> refs_of(const std::string& commit) const;
  // Commits with a snapshot folder, sorted.
  std::vector<std::string> commits() const;

  // Makes the folders, and marks the cache for backup programs.
  void make_folders() const;
  // Makes NAME in the snapshot a relative link to the blob, replacing
  // whatever file has that name.
  void link(
      const std::string& commit,
      const std::string& name,
      const std::string& hash) const;
  void write_ref(const std::string& revision, const std::string& commit) const;

 private:
  std::filesystem::path cache_;
  std::filesystem::path folder_;
  std::filesystem::path lock_folder_;
};

// Repositories of models in the cache ("org/name", or "name" of old ones),
// sorted.
std::vector<std::string> cached_repos(const std::filesystem::path& cache);

// True for 40 (SHA-1) or 64 (SHA-256) hexadecimal digits.
bool is_commit(std::string_view text);

}  // namespace mlxx::hub
