#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "mlxx/base/mapped_file.h"
#include "mlxx/hub/gguf_metadata.h"
#include "mlxx/hub/gguf_types.h"

namespace mlxx::hub {

struct GgufTensor {
  std::string name;            // as the file says it: "blk.0.attn_q.weight"
  std::vector<int64_t> shape;  // slowest axis first, the reverse of the file's
  const GgufType* type;
  uint64_t offset;  // from the start of the file
  uint64_t nbytes;
};

// One GGUF file of version 2 or 3, mapped and validated before use: every
// length lies inside the file, no key or tensor stands twice, sizes are
// computed in 64 bits with overflow checks, rows are whole blocks, offsets are
// aligned, inside the file and do not overlap.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
class GgufFile {
 public:
  // Errors: not_found; bad_file, naming key or tensor; unsupported for
  // version 1 and big-endian files.
  explicit GgufFile(const std::filesystem::path& path);

  const MappedFile& file() const {
    return file_;
  }
  const GgufMetadata& metadata() const {
    return metadata_;
  }
  // In the order of the file.
  const std::vector<GgufTensor>& tensors() const {
    return tensors_;
  }
  // Where the data section begins.
  uint64_t data_offset() const {
    return data_offset_;
  }

 private:
  MappedFile file_;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  uint64_t data_offset_ = 0;
};

}  // namespace mlxx::hub
