#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "mlxx/core/safetensors.h"

namespace mlxx {

// All arrays and all metadata of a file, to look through, add to and save.
struct SafetensorsContent {
  std::map<std::string, mx::array> arrays;
  SafetensorsMetadata metadata;
};

// Reads only the header; each array as SafetensorsFile::load_lazily(). Errors
// of SafetensorsFile and of that function, for any of the tensors.
SafetensorsContent load_safetensors(const std::filesystem::path& path);

// Errors and what a crash leaves as write_safetensors(), in the order of the
// names. The path may be the one that the content was loaded from: the arrays
// keep the old file.
void save_safetensors(
    const std::filesystem::path& path,
    const SafetensorsContent& content);

}  // namespace mlxx
