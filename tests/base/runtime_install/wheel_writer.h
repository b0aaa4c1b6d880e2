#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mlxx::runtime {

struct WheelEntry {
  std::string name;
  std::string content;
  std::string link_target = {};  // then the entry is a symbolic link
};

// A zip file, sound or hostile.
void write_wheel(
    const std::filesystem::path& path,
    const std::vector<WheelEntry>& entries);

}  // namespace mlxx::runtime
