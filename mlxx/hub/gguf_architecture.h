#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/hub/gguf_file.h"
#include "mlxx/hub/gguf_repack.h"

namespace mlxx::hub {

// A module of the file and of Hugging Face's layout, without ".weight" or
// ".bias"; "{}" stands for the number of the layer.
struct GgufModuleName {
  std::string_view gguf;
  std::string_view hub;
};

// What a general.architecture means: one constant per file gguf_<name>.cpp,
// listed in gguf_architecture.cpp.
struct GgufArchitecture {
  std::string_view name;
  std::span<const GgufModuleName> modules;
  // Tensors that make_config() consumes or that hold nothing of use.
  std::span<const std::string_view> consumed;
  // config.json without the ids of special tokens. bad_file or unsupported
  // for keys that contradict each other or ask for what is not implemented.
  Json (*make_config)(const GgufFile& file);
  // How the rows of a tensor are ordered, by its Hugging Face name.
  RowOrder (*row_order)(const Json& config, std::string_view name);
  // The converter adds one to norm weights, which the model adds again.
  bool norms_plus_one = false;
};

// By general.architecture; unsupported, naming it and what is known.
const GgufArchitecture& find_gguf_architecture(const GgufFile& file);

// The tensor's Hugging Face name; absent if it is consumed. unsupported if
// the architecture has no such tensor.
std::optional<std::string> hub_tensor_name(
    const GgufArchitecture& architecture,
    std::string_view gguf_name,
    const std::string& place);

// nullptr if there is none.
const GgufTensor* find_gguf_tensor(const GgufFile& file, std::string_view name);

// A list of `count` positive F32 numbers in a tensor; empty if there is none.
std::vector<float>
read_gguf_factors(const GgufFile& file, std::string_view name, int64_t count);

// rope_scaling of config.json from <architecture>.rope.scaling.* and
// rope_freqs.weight; null if positions are not scaled.
Json make_rope_scaling(
    const GgufFile& file,
    const std::string& architecture,
    int64_t head_size,
    double base,
    int64_t context_length);

}  // namespace mlxx::hub
