#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
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

// The dtype of MLX for a dtype name of the format; absent for the 8-bit floats,
// which MLX lacks. float64 is for the CPU only.
std::optional<mx::Dtype> safetensors_mlx_dtype(std::string_view dtype);

using SafetensorsMetadata = std::map<std::string, std::string>;

// One .safetensors file, mapped and validated as strictly as the reference
// reader does it: header length within the file, an object of plain tensor
// records and string metadata, no duplicate names, shape x dtype = byte range,
// and ranges that cover the data exactly: no overlap, no hole, nothing after.
//
// The mapping outlives the object in every array that still reads from it, and
// outlives the file's name: a file that is deleted or replaced (as AtomicFile
// does) changes nothing. A file that is *shortened in place* is noticed where
// bytes are asked for, as bad_file; touching the lost pages of a mapped array
// later ends the process with SIGBUS, as with any mapping. Bytes that are
// overwritten in place may or may not be seen.
class SafetensorsFile {
 public:
  // Errors: not_found; bad_file, naming tensor and numbers; unsupported for an
  // unknown dtype.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const {
    return file_->path();
  }
  uint64_t size() const {
    return file_->size();
  }
  // Sorted by name.
  const std::vector<SafetensorsEntry>& entries() const {
    return entries_;
  }
  const SafetensorsMetadata& metadata() const {
    return metadata_;
  }
  // nullptr if there is none.
  const SafetensorsEntry* find(std::string_view name) const;

  // All three are row-contiguous, in the entry's dtype and shape. Errors:
  // unsupported where safetensors_mlx_dtype() is absent or MLX cannot hold the
  // shape; bad_file if the file was shortened; out_of_memory.

  // A copy in MLX's memory, now; the mapped pages are given back.
  mx::array load(const SafetensorsEntry& entry) const;

  // The same, read when the array is evaluated, on the CPU stream whatever the
  // default device is; errors of reading come out of that evaluation. As for
  // every lazy array of MLX, that must be on the thread that made it, and a
  // compiled function that captures it reads the file at each call: evaluate
  // before compiling.
  mx::array load_lazily(const SafetensorsEntry& entry) const;

  // The file's own pages, without a copy (core/borrowed_array.h). A copy, as
  // load() makes it, where MLX cannot borrow memory and for a tensor that does
  // not begin on a multiple of its element's size.
  mx::array map(const SafetensorsEntry& entry) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

}  // namespace mlxx
