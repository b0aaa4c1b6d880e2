#include "mlxx/models/decoder_config.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::models {
namespace {

constexpr int kLargestSize = 1 << 24;
constexpr int kMostLayers = 4096;
constexpr int kMostHeads = 4096;
constexpr int kLargestHead = 8192;

}  // namespace

DecoderConfig::DecoderConfig(const hub::Checkpoint& checkpoint)
    : checkpoint_(checkpoint), view_(checkpoint.config(), "config.json") {}

DecoderConfig::DecoderConfig(const hub::Checkpoint& checkpoint, JsonView view)
    : checkpoint_(checkpoint), view_(std::move(view)) {}

bool DecoderConfig::has_tensor(std::string_view name) const {
  return std::ranges::any_of(checkpoint_.tensors(), [&](const auto& tensor) {
    return tensor.name == name;
  });
}

int DecoderConfig::size(std::string_view key) const {
  return static_cast<int>(view_.integer(key, 1, kLargestSize));
}

int DecoderConfig::size_or(std::string_view key, int fallback) const {
  return view_.has(key) ? size(key) : fallback;
}

float DecoderConfig::number(std::string_view key) const {
  return static_cast<float>(view_.number(key));
}

float DecoderConfig::number_or(std::string_view key, double fallback) const {
  return static_cast<float>(view_.number_or(key, fallback));
}

bool DecoderConfig::flag_or(std::string_view key, bool fallback) const {
  return view_.boolean_or(key, fallback);
}

DecoderSpec DecoderConfig::decoder(const ConfigKeys& keys) const {
  DecoderSpec spec;
  spec.model_type = view_.string("model_type");
  spec.vocab_size = size("vocab_size");
  spec.hidden_size = size(keys.hidden_size);
  spec.max_position_embeddings =
      static_cast<int>(view_.integer_or(keys.positions, 0, 0, INT32_MAX));
  nn::LayerSpec layer;
  layer.hidden_size = spec.hidden_size;
  layer.intermediate_size =
      keys.intermediate_size.empty() ? 0 : size(keys.intermediate_size);
  layer.heads = static_cast<int>(view_.integer(keys.heads, 1, kMostHeads));
  layer.kv_heads = static_cast<int>(
      view_.integer_or(keys.kv_heads, layer.heads, 1, layer.heads));
  if (layer.heads % layer.kv_heads != 0) {
    view_.fail_at(
        keys.kv_heads,
        fmt::format(
            "is {}, which does not divide {} heads",
            layer.kv_heads,
            layer.heads));
  }
  layer.head_size =
      static_cast<int>(view_.integer_or("head_dim", 0, 0, kLargestHead));
  if (layer.head_size == 0) {
    if (spec.hidden_size % layer.heads != 0) {
      view_.fail_at(
          keys.heads,
          fmt::format(
              "is {}, which does not divide a hidden size of {}",
              layer.heads,
              spec.hidden_size));
    }
    layer.head_size = spec.hidden_size / layer.heads;
  }
  layer.attention_scale = static_cast<float>(std::pow(layer.head_size, -0.5));
  layer.norm.eps = number(keys.norm_eps);
  spec.final_norm = layer.norm;
  auto layers = view_.integer(keys.layers, 1, kMostLayers);
  spec.layers.assign(static_cast<size_t>(layers), layer);
  spec.tied = read_tied(*this, spec);
  return spec;
}

std::vector<std::string> DecoderConfig::layer_types(int layers) const {
  auto types = view_.strings_or_empty("layer_types");
  if (!types.empty() && types.size() != static_cast<size_t>(layers)) {
    view_.fail_at(
        "layer_types",
        fmt::format("has {} entries for {} layers", types.size(), layers));
  }
  return types;
}

void DecoderConfig::read_windows(DecoderSpec& spec) const {
  auto types = layer_types(static_cast<int>(spec.layers.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "sliding_attention") {
      spec.layers[i].window =
          static_cast<int>(view_.integer("sliding_window", 1, INT32_MAX));
    } else if (types[i] != "full_attention") {
      fail(
          ErrorKind::unsupported,
          view_.place(),
          "layer type '{}' is not known to {}",
          types[i],
          spec.model_type);
    }
  }
}

double DecoderConfig::rope_base(double fallback) const {
  if (view_.has("rope_theta")) {
    return view_.number("rope_theta");
  }
  return view_.has("rope_parameters")
      ? view_.object("rope_parameters").number_or("rope_theta", fallback)
      : fallback;
}

std::shared_ptr<const nn::Rope>
DecoderConfig::rope(int dims, double default_base, bool traditional) const {
  // transformers 5 moved base and scaling into one object.
  std::optional<JsonView> scaling;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (view_.has(key)) {
      scaling = view_.object(key);
    }
  }
  nn::RopeOptions options;
  options.dims = dims;
  options.base = rope_base(default_base);
  options.traditional = view_.boolean_or("rope_traditional", traditional);
  options.max_position_embeddings = static_cast<int>(
      view_.integer_or("max_position_embeddings", 0, 0, INT32_MAX));
  return nn::make_rope(options, scaling);
}

std::shared_ptr<const nn::Rope>
DecoderConfig::plain_rope(int dims, double base, bool traditional) const {
  nn::RopeOptions options;
  options.dims = dims;
  options.base = base;
  options.traditional = traditional;
  return nn::make_rope(options, std::nullopt);
}

int DecoderConfig::rotated(int head_size, double default_factor) const {
  constexpr auto kKey = "partial_rotary_factor";
  double factor = view_.number_or(kKey, default_factor);
  int dims = static_cast<int>(head_size * std::clamp(factor, -1.0, 2.0));
  if (dims < 2 || dims > head_size || dims % 2 != 0) {
    view_.fail_at(
        kKey,
        fmt::format("is {}, which rotates {} of {}", factor, dims, head_size));
  }
  return dims;
}

void DecoderConfig::require_activation(
    std::initializer_list<std::string_view> names,
    std::string_view key) const {
  std::string name = view_.string_or(key, "");
  if (!name.empty() && std::ranges::find(names, name) == names.end()) {
    fail(
        ErrorKind::unsupported,
        view_.place(),
        "{} '{}' is not the family's {}",
        key,
        name,
        *names.begin());
  }
}

}  // namespace mlxx::models
