#include "mlxx/hub/model_name.h"

#include <algorithm>

#include "mlxx/base/utf8.h"

namespace mlxx::hub {

namespace {

constexpr size_t kMaxHalf = 96;
constexpr size_t kMaxPart = 255;
constexpr size_t kMaxName = 1024;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
      (c >= '0' && c <= '9') || c == '_';
}

bool is_half(std::string_view half) {
  bool allowed = std::all_of(half.begin(), half.end(), [](char c) {
    return is_word(c) || c == '-' || c == '.';
  });
  return allowed && !half.empty() && half.size() <= kMaxHalf &&
      is_word(half.front()) && is_word(half.back()) &&
      half.find("--") == std::string_view::npos &&
      half.find("..") == std::string_view::npos && !half.ends_with(".git");
}

}  // namespace

std::string RepoName::text() const {
  std::string text = repo;
  if (!revision.empty()) {
    text += "@" + revision;
  }
  if (!file.empty()) {
    text += ":" + file;
  }
  return text;
}

std::optional<RepoName> parse_repo_name(std::string_view text) {
  RepoName name;
  size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    name.file = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!is_safe_file_name(name.file)) {
      return std::nullopt;
    }
  }
  size_t at = text.find('@');
  if (at != std::string_view::npos) {
    name.revision = text.substr(at + 1);
    text = text.substr(0, at);
    // It becomes the name of a file below refs/.
    if (!is_safe_file_name(name.revision)) {
      return std::nullopt;
    }
  }
  size_t slash = text.find('/');
  if (slash == std::string_view::npos || !is_half(text.substr(0, slash)) ||
      !is_half(text.substr(slash + 1))) {
    return std::nullopt;
  }
  name.repo = text;
  return name;
}

bool is_safe_file_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || !is_valid_utf8(name)) {
    return false;
  }
  for (char c : name) {
    auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || c == '\\') {
      return false;
    }
  }
  size_t begin = 0;
  while (begin <= name.size()) {
    size_t end = std::min(name.find('/', begin), name.size());
    std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPart) {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

}  // namespace mlxx::hub
