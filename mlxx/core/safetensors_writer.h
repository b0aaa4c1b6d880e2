#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx {

struct SafetensorsSpec {
  std::string name;
  mx::Dtype dtype;
  mx::Shape shape;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes beside the target, syncs, then renames: readers see the old file or
// the new one. `array_of(i)` is asked for one array at a time, in the order of
// the specs, and must return it in that dtype and shape, so that the whole
// need not fit into memory.
// Errors: invalid_request for a duplicate name or a dtype that the format
// lacks; internal with the system's message if the file cannot be written.
void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<SafetensorsSpec>& specs,
    const std::function<mx::array(size_t index)>& array_of,
    const SafetensorsMetadata& metadata = {});

void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, mx::array>>& arrays,
    const SafetensorsMetadata& metadata = {});

}  // namespace mlxx
