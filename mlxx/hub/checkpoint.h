#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/core/mlx.h"
#include "mlxx/core/quantized_rows.h"

namespace mlxx::hub {

// How a weight matrix is packed, in MLX's terms (mx::quantize).
struct Quantization {
  int group_size;
  int bits;
  std::string mode;  // "affine", "mxfp4", "nvfp4", "mxfp8"
  // nvfp4 with one more scale for a matrix, or for each of a stack.
  bool has_global_scale = false;
  // config.json names no form for this module but that for all, which mlx-lm
  // takes for a guess: shapes decide.
  bool is_default = false;
};

// One logical parameter of a checkpoint, under its Hugging Face name. The
// packed weight, scales and biases of a quantized matrix are one entry, whose
// name ends in ".weight".
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;  // logical: [out, in] even if quantized
  std::string stored;  // as the file says it: "BF16", "Q4_1", "U32 affine"
  uint64_t nbytes;     // in the file, scales and biases included
  std::optional<Quantization> quantization;
  // What load() gives instead of the stored numbers, as "F32", where MLX has
  // no form for them; empty: what the file has.
  std::string loads_as = {};
};

struct Weight {
  mx::array weight;  // packed uint32 [out, in*bits/32] if quantized
  std::optional<mx::array> scales;  // [out, in/group]
  std::optional<mx::array> biases;  // [out, in/group], affine only
  // As WeightArrays::global_scale (core/parameters.h); float32, [] or [N].
  std::optional<mx::array> global_scale = {};
};

// A tensor of the file that no model is to see, and why: "vision tower".
struct DroppedTensor {
  TensorInfo info;
  std::string reason;
};

struct LoadDtype {
  // What scales and biases of quantized GGUF tensors become; GGUF stores fp16.
  mx::Dtype scales = mx::float16;
};

// The texts that the text layer needs, as the checkpoint ships them or as
// they were derived from GGUF metadata.
struct TextFiles {
  std::string tokenizer_json;  // Hugging Face tokenizer.json
  // bos_token, eos_token, add_bos_token... (tokenizer_config.json's keys).
  std::string tokenizer_config_json;  // an object, "{}" if there is none
  // Template name -> source; the nameless one is "default".
  std::vector<std::pair<std::string, std::string>> chat_templates;
};

// A model on disk, validated when opened: every length and offset was checked
// against the real files before this object exists. Immutable; `load` may be
// called from the MLX thread only.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const std::filesystem::path& path() const = 0;
  virtual std::string format() const = 0;  // "safetensors" or "gguf"
  // config.json in Hugging Face's layout (made from metadata for GGUF).
  virtual const Json& config() const = 0;
  // generation_config.json; an empty object if there is none.
  virtual const Json& generation_config() const = 0;
  virtual const TextFiles& text() const = 0;
  // SHA-256 of all that text().tokenizer_json is made from; empty if that
  // takes no less time than making it.
  virtual std::string tokenizer_digest() const {
    return {};
  }
  // text(), but tokenizer_json may be empty: for who has the tokenizer
  // already, since making that takes longest.
  virtual const TextFiles& text_beside_tokenizer() const {
    return text();
  }
  // Sorted by name, no duplicates.
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // What is left out of tensors() on purpose, sorted by name.
  virtual const std::vector<DroppedTensor>& dropped() const;
  // Bytes of all weight files.
  virtual uint64_t file_bytes() const = 0;

  // Materialised arrays of one entry of tensors(). not_found for another name.
  virtual Weight load(const std::string& name, const LoadDtype& dtype)
      const = 0;

  // The same entry row by row, for a kernel that packs it in a form of its
  // own; null if load() is the only way. Valid while the checkpoint is.
  virtual std::unique_ptr<const QuantizedRows> rows(const std::string&) const {
    return nullptr;
  }
};

// `path` is a folder in Hugging Face layout or a .gguf file.
// Errors: not_found, bad_file, unsupported; each names the file and the field.
std::shared_ptr<const Checkpoint> open_checkpoint(
    const std::filesystem::path& path);

}  // namespace mlxx::hub
