#pragma once

#include <fstream>
#include <optional>
#include <string>

namespace mlxx {

// Bytes that this process had resident at most while `work` ran, beyond those
// it had before; nothing where the system does not say.
template <typename Work>
std::optional<int64_t> peak_memory(const Work& work) {
  auto status = [](const std::string& key) -> std::optional<int64_t> {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(key + ":")) {
        return std::stoll(line.substr(key.size() + 1)) * 1024;
      }
    }
    return std::nullopt;
  };
  // Forgets the peak so far.
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;
  auto before = status("VmRSS");
  if (!reset || !before) {
    return std::nullopt;
  }
  work();
  auto peak = status("VmHWM");
  return peak ? std::optional(*peak - *before) : std::nullopt;
}

}  // namespace mlxx
