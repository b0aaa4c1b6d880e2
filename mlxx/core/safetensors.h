#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/mapped_file.h"
#include "mlxx/core/mlx.h"

namespace mlxx {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file says it: "BF16", "F8_E4M3"
  std::vector<int64_t> shape;
  uint64_t offset;  // from the start of the file
  uint64_t nbytes;
};

// What MLX computes with, for a dtype name of the format; absent for F64 and
// the 8-bit floats, which MLX arrays here cannot hold.
std::optional<mx::Dtype> safetensors_mlx_dtype(std::string_view dtype);

// One .safetensors file, mapped and validated as strictly as the reference
// reader does it: header length within the file, an object of plain tensor
// records and string metadata, no duplicate names, shape x dtype = byte range,
// and ranges that cover the data exactly: no overlap, no hole, nothing after.
class SafetensorsFile {
 public:
  // Errors: not_found; bad_file, naming tensor and numbers; unsupported for an
  // unknown dtype.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const {
    return file_.path();
  }
  uint64_t size() const {
    return file_.size();
  }
  // Sorted by name.
  const std::vector<SafetensorsEntry>& entries() const {
    return entries_;
  }
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  // nullptr if there is none.
  const SafetensorsEntry* find(std::string_view name) const;

  // A copy in MLX's memory, row-contiguous; the mapped pages are given back.
  // unsupported where safetensors_mlx_dtype() is absent.
  mx::array load(const SafetensorsEntry& entry) const;

 private:
  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace mlxx
