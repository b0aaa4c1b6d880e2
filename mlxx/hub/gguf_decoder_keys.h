#pragma once

#include <string>

#include "mlxx/base/json.h"
#include "mlxx/hub/gguf_architecture.h"

namespace mlxx::hub {

// The keys that decoders share in GGUF files, each under the architecture's
// own prefix ("llama.block_count"), checked against each other.
struct GgufDecoderKeys {
  const GgufFile& file;
  std::string architecture;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t rotated = 0;  // of a head, from its start
  int64_t context = 0;
  double base = 0;  // of the rotation

  std::string key(std::string_view name) const {
    return architecture + "." + std::string(name);
  }
  const GgufMetadata& metadata() const {
    return file.metadata();
  }
  // What config.json says in the words of Hugging Face, without what is
  // particular to a family. `class_name` as "LlamaForCausalLM".
  Json config(std::string_view model_type, std::string_view class_name) const;
  // Where a head is rotated whole, which most families want: unsupported if
  // the file says otherwise.
  void require_full_rotation() const;
};

// bad_file or unsupported for what contradicts itself or cannot be computed:
// experts, counts that differ between layers, multipliers that the families
// read here do not have.
GgufDecoderKeys read_gguf_decoder(
    const GgufFile& file,
    const std::string& architecture);

// GgufArchitecture::row_order of a family whose rows the converter keeps.
RowOrder rows_as_they_are(const Json& config, std::string_view name);

}  // namespace mlxx::hub
