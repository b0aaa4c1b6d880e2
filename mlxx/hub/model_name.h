#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mlxx::hub {

// org/repo[@revision][:file], as a model on a Hugging Face hub is named.
struct RepoName {
  std::string repo;      // org/name
  std::string revision;  // branch, tag, commit or refs/pr/N; "" means main
  // One GGUF file of the repository, or a quantization that its name ends in
  // ("Q4_1"); "" means the one that there is.
  std::string file;

  std::string revision_or_main() const {
    return revision.empty() ? "main" : revision;
  }
  std::string text() const;
};

// Nothing if `text` has another form. Names follow the hub's rules: letters,
// digits, "-_." in both halves, at most 96 each, no "--" and no "..".
std::optional<RepoName> parse_repo_name(std::string_view text);

// True for a relative path in UTF-8 that stays below its folder: no empty,
// "." or ".." part, no backslash, no control character, no part over 255
// bytes, at most 1,024 in all.
bool is_safe_file_name(std::string_view name);

}  // namespace mlxx::hub
