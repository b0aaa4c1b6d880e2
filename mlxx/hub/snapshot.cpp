#include "mlxx/hub/snapshot.h"

#include <algorithm>
#include <system_error>

#include "mlxx/base/error.h"
#include "mlxx/hub/file_selection.h"
#include "mlxx/hub/hf_cache.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

// Of files whose content is there (no dangling links), sorted.
std::vector<std::string> names_with_ending(
    const fs::path& folder,
    std::string_view ending) {
  std::vector<std::string> names;
  std::error_code error;
  // GGUF files may lie in folders by quantization. Links to folders are not
  // followed.
  for (fs::recursive_directory_iterator at(folder, error), end;
       !error && at != end;
       at.increment(error)) {
    std::string name = at->path().lexically_relative(folder).generic_string();
    std::error_code ignored;
    if (name.ends_with(ending) && at->is_regular_file(ignored)) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool has_safetensors(const fs::path& folder) {
  auto names = names_with_ending(folder, ".safetensors");
  return std::any_of(names.begin(), names.end(), [](const auto& name) {
    return name.find('/') == std::string::npos;
  });
}

}  // namespace

std::string weight_format(const fs::path& folder) {
  if (has_safetensors(folder)) {
    return "safetensors";
  }
  return names_with_ending(folder, ".gguf").empty() ? "" : "gguf";
}

fs::path find_model_in_snapshot(const fs::path& folder, const RepoName& name) {
  if (name.file.empty() && has_safetensors(folder)) {
    return folder;
  }
  auto gguf = names_with_ending(folder, ".gguf");
  if (gguf.empty()) {
    fail(
        ErrorKind::not_found,
        name.text(),
        "{} holds no {}; get it with: mlxx pull {}",
        folder.string(),
        name.file.empty() ? "weights" : "GGUF file",
        name.text());
  }
  return folder / choose_gguf(gguf, name.file, name.text());
}

std::optional<fs::path> find_in_hub_cache(
    const RepoName& name,
    const fs::path& cache) {
  RepoCache repo(cache, name.repo);
  auto commit = repo.find_commit(name.revision_or_main());
  std::error_code error;
  if (!commit || !fs::is_directory(repo.snapshot(*commit), error)) {
    return std::nullopt;
  }
  return find_model_in_snapshot(repo.snapshot(*commit), name);
}

}  // namespace mlxx::hub
