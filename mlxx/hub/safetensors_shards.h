#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace mlxx::hub {

// The files of a folder that hold the model's weights.
struct SafetensorsShards {
  std::vector<std::filesystem::path> files;
  // Tensor name -> file name, as the index says; empty without an index.
  std::map<std::string, std::string> index;
};

// Which files belong to the model:
// 1. model.safetensors.index.json exists and so do all files that it names:
//    exactly these.
// 2. The index names files that are missing: model.safetensors, or a complete
//    set model-00001-of-0000N.safetensors, with a warning; else an error that
//    lists what is missing.
// 3. Without an index: model.safetensors or one complete set. Both at once, or
//    two sets, are ambiguous and an error.
// Adapters, consolidated*.safetensors and hidden files (._model.safetensors)
// never belong to it. Names in the index are plain file names.
// Errors: not_found if there are no weights; unsupported if there are only
// pickles or other formats; bad_file for a bad index or an incomplete set.
SafetensorsShards find_safetensors_shards(const std::filesystem::path& folder);

}  // namespace mlxx::hub
