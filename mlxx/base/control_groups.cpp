#include "mlxx/base/control_groups.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

namespace mlxx {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxKernelFile = size_t{1} << 20;
constexpr int kMaxLevels = 100;
constexpr std::string_view kSpace = " \t\r\n";

// What one version of control groups calls its files.
struct Version {
  bool is_first;
  std::vector<const char*> limits;
  const char* used;
  const char* droppable;  // a line of memory.stat
};

const Version kVersions[] = {
    {false, {"memory.max", "memory.high"}, "memory.current", "inactive_file"},
    {true,
     {"memory.limit_in_bytes"},
     "memory.usage_in_bytes",
     "total_inactive_file"},
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

bool contains(std::string_view list, std::string_view word) {
  return std::ranges::count(split(list, ','), word) > 0;
}

// "max", anything that is no number and numbers beyond 64 bits are absent.
std::optional<uint64_t> parse_number(std::string_view text) {
  size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) {
    return std::nullopt;
  }
  text = text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  uint64_t value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// mountinfo writes spaces, tabs, newlines and backslashes as "\040".
std::string unescape(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char* digits = text.data() + i + 1;
    int value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, value, 8).ptr == digits + 3) {
      result += static_cast<char>(value);
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

struct Mount {
  fs::path group;  // the control group that is mounted
  fs::path point;  // where
};

// Where the groups of a version are mounted: a line of mountinfo is "id parent
// device root point options [optional...] - type source super-options".
std::optional<Mount> find_mount(const fs::path& root, const Version& version) {
  auto text = read_kernel_file(root / "proc/self/mountinfo");
  if (!text) {
    return std::nullopt;
  }
  for (auto line : split(*text, '\n')) {
    auto fields = split(line, ' ');
    auto dash = std::ranges::find(fields, "-");
    if (fields.size() < 5 || fields.end() - dash < 4) {
      continue;
    }
    bool fits = version.is_first
        ? dash[1] == "cgroup" && contains(dash[3], "memory")
        : dash[1] == "cgroup2";
    if (fits) {
      return Mount{unescape(fields[3]), unescape(fields[4])};
    }
  }
  return std::nullopt;
}

// This process's group: lines are "id:controllers:path", version 2 has no
// controllers.
std::optional<fs::path> find_group(
    const fs::path& root,
    const Version& version) {
  auto text = read_kernel_file(root / "proc/self/cgroup");
  if (!text) {
    return std::nullopt;
  }
  for (auto line : split(*text, '\n')) {
    size_t first = line.find(':');
    size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) {
      continue;
    }
    auto controllers = line.substr(first + 1, second - first - 1);
    if (version.is_first ? contains(controllers, "memory")
                         : controllers.empty()) {
      return fs::path(line.substr(second + 1));
    }
  }
  return std::nullopt;
}

// Absent for a group without a limit.
std::optional<MemoryGroup> read_group(
    const fs::path& folder,
    const Version& version) {
  std::optional<uint64_t> limit;
  for (const char* name : version.limits) {
    auto text = read_kernel_file(folder / name);
    auto value = text ? parse_number(*text) : std::nullopt;
    if (value) {
      limit = std::min(limit.value_or(*value), *value);
    }
  }
  if (!limit) {
    return std::nullopt;
  }
  auto text = read_kernel_file(folder / version.used);
  uint64_t used = text ? parse_number(*text).value_or(0) : 0;
  auto stat = read_kernel_file(folder / "memory.stat");
  uint64_t droppable =
      stat ? number_in_line(*stat, version.droppable).value_or(0) : 0;
  return MemoryGroup{*limit, used - std::min(used, droppable)};
}

}  // namespace

std::optional<std::string> read_kernel_file(const fs::path& path) {
  std::error_code error;
  // Reading from a FIFO or a device could wait for ever.
  if (!fs::is_regular_file(path, error)) {
    return std::nullopt;
  }
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char part[4096];
  while (file && text.size() < kMaxKernelFile) {
    file.read(part, sizeof part);
    text.append(part, static_cast<size_t>(file.gcount()));
  }
  if (file.bad() || !(file || file.eof())) {
    return std::nullopt;
  }
  return text;
}

std::optional<uint64_t> number_in_line(
    std::string_view text,
    std::string_view key) {
  for (auto line : split(text, '\n')) {
    if (!line.starts_with(key)) {
      continue;
    }
    line.remove_prefix(key.size());
    if (line.starts_with(':')) {
      line.remove_prefix(1);
    } else if (!line.starts_with(' ') && !line.starts_with('\t')) {
      continue;
    }
    line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
    return parse_number(line.substr(0, line.find_first_of(kSpace)));
  }
  return std::nullopt;
}

std::vector<MemoryGroup> memory_groups(const fs::path& root) {
  std::vector<MemoryGroup> groups;
  for (const auto& version : kVersions) {
    auto mount = find_mount(root, version);
    auto group = find_group(root, version);
    if (!mount || !group) {
      continue;
    }
    // A container sees its own group mounted at the top, whether its name for
    // it is "/", the outer name, or one beyond its view ("/../other").
    fs::path inside = group->lexically_normal().lexically_relative(
        mount->group.lexically_normal());
    bool is_top = inside.empty() || inside == "." || *inside.begin() == "..";
    fs::path top = root / mount->point.relative_path();
    fs::path at = is_top ? top : top / inside;
    for (int level = 0; level < kMaxLevels; ++level) {
      if (auto found = read_group(at, version)) {
        groups.push_back(*found);
      }
      if (at == top) {
        break;
      }
      at = at.parent_path();
    }
  }
  return groups;
}

}  // namespace mlxx
