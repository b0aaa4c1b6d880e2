#include "mlxx/hub/resolve.h"

#include <system_error>
#include <vector>

#include "mlxx/base/closest_match.h"
#include "mlxx/base/error.h"
#include "mlxx/hub/cached_models.h"
#include "mlxx/hub/catalogue.h"
#include "mlxx/hub/hf_cache.h"
#include "mlxx/hub/hub_settings.h"
#include "mlxx/hub/model_name.h"
#include "mlxx/hub/snapshot.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxNeighbours = 1000;

fs::path resolve_catalogue(const CatalogueEntry& entry) {
  fs::path path = catalogue_path(entry);
  switch (catalogue_state(entry)) {
    case CatalogueState::whole:
      return path;
    case CatalogueState::absent:
      fail(
          ErrorKind::not_found,
          entry.name,
          "is not on this machine yet; get it with: mlxx pull {}",
          entry.name);
    case CatalogueState::damaged:
      break;
  }
  fail(
      ErrorKind::bad_file,
      entry.name,
      "{} is damaged or not the one that this mlxx knows; get it anew with: "
      "mlxx pull {}",
      path.string(),
      entry.name);
}

// "; did you mean 'model.gguf'?" of what lies beside a path that is not there.
std::string neighbour_hint(const fs::path& path) {
  fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end;
       !error && at != end && names.size() < kMaxNeighbours;
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  auto near = closest_match(path.filename().string(), names);
  return near ? fmt::format(
                    "; did you mean '{}'?",
                    path.has_parent_path() ? (folder / *near).string() : *near)
              : std::string();
}

// Other revisions of the repository that are here, for the error.
std::string revisions_hint(const RepoName& name, const fs::path& cache) {
  RepoCache repo(cache, name.repo);
  std::string found;
  for (const std::string& commit : repo.commits()) {
    auto refs = repo.refs_of(commit);
    found += found.empty() ? "" : ", ";
    found += refs.empty() ? commit.substr(0, 12) : refs.front();
  }
  return found.empty() ? std::string()
                       : fmt::format(" (revisions that are here: {})", found);
}

fs::path resolve_repo(const RepoName& name) {
  fs::path cache = hugging_face_cache();
  if (auto path = find_in_hub_cache(name, cache)) {
    return *path;
  }
  auto near = closest_match(name.repo, known_model_names());
  bool is_other = near && *near != name.repo;
  fail(
      ErrorKind::not_found,
      name.text(),
      "is not on this machine{}; {}get it with: mlxx pull {}",
      revisions_hint(name, cache),
      is_other ? fmt::format("did you mean '{}'? or ", *near) : "",
      name.text());
}

bool looks_like_path(const std::string& model) {
  return model.starts_with('/') || model.starts_with('.') ||
      model.starts_with('~') || model.ends_with('/') ||
      model.ends_with(".gguf") || model.ends_with(".safetensors");
}

}  // namespace

fs::path resolve_model(const std::string& model) {
  if (model.empty()) {
    fail(ErrorKind::invalid_request, "model", "the name is empty");
  }
  if (model.find('\0') != std::string::npos) {
    fail(ErrorKind::invalid_request, "model", "the name holds a NUL byte");
  }
  // A catalogue name wins over a folder of that name: ./smollm2 names that.
  if (const CatalogueEntry* entry = find_in_catalogue(model)) {
    return resolve_catalogue(*entry);
  }
  std::error_code error;
  if (fs::exists(model, error)) {
    return model;
  }
  auto name = parse_repo_name(model);
  // org/repo:model.gguf ends as a path does, and has a colon.
  if (name && (!looks_like_path(model) || !name->file.empty())) {
    return resolve_repo(*name);
  }
  if (looks_like_path(model) || model.find('/') != std::string::npos) {
    fail(
        ErrorKind::not_found,
        model,
        "there is no such file or folder{}",
        neighbour_hint(model));
  }
  auto near = closest_match(model, known_model_names());
  fail(
      ErrorKind::not_found,
      model,
      "is no file, no folder and no known model; {}",
      near ? fmt::format("did you mean '{}'?", *near)
           : "`mlxx list` shows what is here");
}

}  // namespace mlxx::hub
