#pragma once

#include <filesystem>

namespace mlxx {

// A new private folder beside the place where its content will end up. It is
// removed with the object, unless publish() gave it its final name.
class StagingFolder {
 public:
  // internal if no folder can be made in `parent`, which exists.
  explicit StagingFolder(const std::filesystem::path& parent);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::filesystem::path& path() const {
    return path_;
  }

  // Renames `inner`, a folder inside, to `target`, replacing what is there. A
  // reader sees the old folder, for a moment none, or the whole new one.
  void publish(
      const std::filesystem::path& inner,
      const std::filesystem::path& target);

 private:
  std::filesystem::path path_;
};

}  // namespace mlxx
