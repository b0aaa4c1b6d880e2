#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mlxx::hub {

// A model on this machine, as `mlxx list` shows it.
struct CachedModel {
  std::string name;               // catalogue name, or org/repo
  std::string revision;           // commit of a snapshot, else empty
  std::vector<std::string> refs;  // branches and tags that name the commit
  std::string format;             // "gguf" or "safetensors"
  // The model's file or folder. Of a snapshot always the folder.
  std::filesystem::path path;
  uint64_t bytes = 0;  // of its files; revisions may share some
  bool is_from_catalogue = false;
  bool is_whole = true;  // false: pull it again
};

// Models of the catalogue, then the snapshots of Hugging Face's cache that
// hold weights, each sorted by name. What cannot be read is left out.
std::vector<CachedModel> cached_models();

// Names that a user may have meant: the catalogue's, and those that are here.
std::vector<std::string> known_model_names();

}  // namespace mlxx::hub
