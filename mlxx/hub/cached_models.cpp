#include "mlxx/hub/cached_models.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "mlxx/hub/catalogue.h"
#include "mlxx/hub/hf_cache.h"
#include "mlxx/hub/hub_settings.h"
#include "mlxx/hub/snapshot.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

// Of the files below `folder`, links followed to their content.
uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end;
       !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) {
      uint64_t size = at->file_size(ignored);
      bytes += ignored ? 0 : size;
    }
  }
  return bytes;
}

void add_catalogue(std::vector<CachedModel>& models) {
  for (const CatalogueEntry& entry : catalogue()) {
    CatalogueState state = catalogue_state(entry);
    if (state == CatalogueState::absent) {
      continue;
    }
    fs::path path = catalogue_path(entry);
    models.push_back(
        {.name = entry.name,
         .revision = {},
         .refs = {},
         .format = path.extension() == ".gguf" ? "gguf" : "safetensors",
         .path = path,
         .bytes = bytes_below(path.parent_path()),
         .is_from_catalogue = true,
         .is_whole = state == CatalogueState::whole});
  }
}

void add_snapshots(std::vector<CachedModel>& models) {
  fs::path cache = hugging_face_cache();
  for (const std::string& name : cached_repos(cache)) {
    RepoCache repo(cache, name);
    for (const std::string& commit : repo.commits()) {
      fs::path folder = repo.snapshot(commit);
      std::string format = weight_format(folder);
      if (!format.empty()) {
        models.push_back(
            {.name = name,
             .revision = commit,
             .refs = repo.refs_of(commit),
             .format = format,
             .path = folder,
             .bytes = bytes_below(folder)});
      }
    }
  }
}

}  // namespace

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  add_catalogue(models);
  add_snapshots(models);
  return models;
}

std::vector<std::string> known_model_names() {
  std::vector<std::string> names;
  for (const CatalogueEntry& entry : catalogue()) {
    names.push_back(entry.name);
  }
  for (const std::string& repo : cached_repos(hugging_face_cache())) {
    names.push_back(repo);
  }
  return names;
}

}  // namespace mlxx::hub
