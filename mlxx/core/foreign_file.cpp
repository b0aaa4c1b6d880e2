#include "mlxx/core/foreign_file.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace mlxx {

namespace {

struct Signature {
  std::string_view prefix;  // lower case
  std::string_view meaning;
};

constexpr Signature kText[] = {
    {"version https://git-lfs",
     "a Git LFS pointer: fetch the real file with 'git lfs pull'"},
    {"<!doctype html", "an HTML page, probably an error page of a download"},
    {"<html", "an HTML page, probably an error page of a download"},
    {"<?xml", "an XML document, probably an error page of a download"},
    {"{\"error", "a JSON error message of a download"},
    {"invalid username or password", "an error message of a download"},
    {"access to model", "an error message of a download"},
};

constexpr std::string_view kBinary[][2] = {
    {"GGUF", "a GGUF file"},
    {std::string_view("PK\x03\x04", 4),
     "a ZIP archive (a PyTorch pickle, perhaps)"},
    {"\x1f\x8b", "a gzip archive"},
    {std::string_view("\x00\x05\x16\x07", 4), "a macOS resource file"},
    {"\x93NUMPY", "a NumPy array"},
    {"\x80\x02", "a Python pickle"},
    {"\x80\x04", "a Python pickle"},
};

}  // namespace

std::optional<std::string_view> describe_foreign_file(
    std::span<const std::byte> bytes) {
  std::string start(
      reinterpret_cast<const char*>(bytes.data()),
      std::min<size_t>(bytes.size(), 64));
  for (const auto& [prefix, meaning] : kBinary) {
    if (start.starts_with(prefix)) {
      return meaning;
    }
  }
  if (start.starts_with("\xEF\xBB\xBF")) {
    start.erase(0, 3);
  }
  start.erase(0, start.find_first_not_of(" \t\r\n"));
  std::ranges::transform(start, start.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const auto& [prefix, meaning] : kText) {
    if (start.starts_with(prefix)) {
      return meaning;
    }
  }
  return std::nullopt;
}

}  // namespace mlxx
