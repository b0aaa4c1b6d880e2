#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/core/safetensors.h"

namespace mlxx {

struct SafetensorsSpec {
  std::string name;
  mx::Dtype dtype;
  mx::Shape shape;
};

// Writes as AtomicFile does (base/atomic_file.h): whoever opens the path finds
// the old file or the new one, whole, also after a kill at any moment.
// `array_of(i)` is asked for one array at a time, in the order of the specs,
// and must return it in that dtype and shape, so that the whole need not fit
// into memory. Strided and lazy arrays are written as the values they mean.
// Errors: invalid_request for a name that stands twice, is "__metadata__" or is
// not UTF-8, and for more than 100 MB of names and metadata; internal with the
// system's message if the file cannot be written; whatever `array_of` throws.
// After an error the old file is still there.
void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<SafetensorsSpec>& specs,
    const std::function<mx::array(size_t index)>& array_of,
    const SafetensorsMetadata& metadata = {});

// In the order given.
using SafetensorsArrays = std::vector<std::pair<std::string, mx::array>>;

void write_safetensors(
    const std::filesystem::path& path,
    const SafetensorsArrays& arrays,
    const SafetensorsMetadata& metadata = {});

}  // namespace mlxx
