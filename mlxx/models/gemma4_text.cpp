// Gemma 4, its text part: layers of full attention with their own head size
// and rotation between ones with a window, the last ones without keys of their
// own, and in the small models an input for each layer. Reference: mlx-lm
// 0.32.2, models/gemma4_text.py.
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_ends.h"
#include "mlxx/models/gemma4_layer.h"
#include "mlxx/models/layer_caches.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/embedding.h"

namespace mlxx::models::gemma4_text {

extern const ModelInfo kInfo;

namespace {

struct Config {
  DecoderSpec decoder;  // without its layers
  std::vector<Gemma4LayerSpec> layers;
  std::vector<size_t> keys_from;  // the layer whose keys each one reads
  int per_layer_input = 0;
  int per_layer_vocabulary = 0;
};

constexpr int kSlidingPattern = 5;

std::vector<bool> read_sliding(const DecoderConfig& config, int layers) {
  auto types = config.layer_types(layers);
  int pattern = config.size_or("sliding_window_pattern", kSlidingPattern);
  std::vector<bool> sliding;
  for (int i = 0; i < layers; ++i) {
    if (types.empty()) {
      sliding.push_back((i + 1) % pattern != 0);
      continue;
    }
    const auto& type = types[static_cast<size_t>(i)];
    if (type != "sliding_attention" && type != "full_attention") {
      fail(
          ErrorKind::unsupported,
          config.view().place(),
          "layer type '{}' is not known to gemma4_text",
          type);
    }
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

std::shared_ptr<const nn::Rope>
read_rope(const DecoderConfig& config, const char* kind, int head_size) {
  const JsonView& view = config.view();
  bool full = std::string_view(kind) == "full_attention";
  nn::RopeOptions options;
  options.dims = head_size;
  options.base = full ? 1000000 : 10000;
  options.traditional = config.flag_or("rope_traditional", false);
  options.max_position_embeddings =
      config.size_or("max_position_embeddings", 131072);
  if (view.has("rope_parameters")) {
    JsonView all = view.object("rope_parameters");
    if (all.has(kind)) {
      JsonView parameters = all.object(kind);
      options.base = parameters.number_or("rope_theta", 10000);
      return nn::make_rope(options, parameters);
    }
    options.base = 10000;
    return nn::make_rope(options, std::nullopt);
  }
  static const Json proportional = {
      {"rope_type", "proportional"},
      {"partial_rotary_factor", 0.25}};
  return full ? nn::make_rope(options, JsonView(proportional, view.place()))
              : nn::make_rope(options, std::nullopt);
}

// Layers without keys of their own read those of the last earlier layer of
// their kind that has some.
std::vector<size_t> find_keys(
    const JsonView& view,
    const std::vector<bool>& sliding,
    size_t with_keys) {
  std::vector<size_t> from;
  for (size_t i = 0; i < sliding.size(); ++i) {
    size_t source = i;
    for (size_t j = 0; i >= with_keys && j < with_keys; ++j) {
      if (sliding[j] == sliding[i]) {
        source = j;
      }
    }
    if (i >= with_keys && source == i) {
      view.fail_at(
          "num_kv_shared_layers",
          fmt::format("leaves layer {} without keys to read", i));
    }
    from.push_back(source);
  }
  return from;
}

Config read_config(const DecoderConfig& source) {
  const JsonView& view = source.view();
  Config config;
  config.decoder = source.decoder();
  DecoderSpec& decoder = config.decoder;
  decoder.embedding_multiplier =
      static_cast<float>(std::sqrt(double{1} * decoder.hidden_size));
  // An explicit null means none.
  constexpr auto kCap = "final_logit_softcapping";
  decoder.final_softcap =
      source.number_or(kCap, view.json().contains(kCap) ? 0 : 30);
  auto layers = static_cast<int>(decoder.layers.size());
  auto sliding = read_sliding(source, layers);
  auto shared =
      static_cast<int>(view.integer_or("num_kv_shared_layers", 20, 0, layers));
  auto with_keys = static_cast<size_t>(layers - shared);
  config.keys_from = find_keys(view, sliding, with_keys);
  config.per_layer_input = static_cast<int>(
      view.integer_or("hidden_size_per_layer_input", 256, 0, 1 << 20));
  config.per_layer_vocabulary =
      source.size_or("vocab_size_per_layer_input", decoder.vocab_size);

  nn::LayerSpec local = decoder.layers.front();
  local.activation = kernels::Activation::gelu_tanh;
  nn::LayerSpec full = local;
  full.head_size = source.size_or("global_head_dim", 512);
  bool values_are_keys = source.flag_or("attention_k_eq_v", false);
  if (values_are_keys && view.has("num_global_key_value_heads")) {
    full.kv_heads = source.size("num_global_key_value_heads");
    if (full.heads % full.kv_heads != 0) {
      view.fail_at("num_global_key_value_heads", "does not divide the heads");
    }
  }
  local.window = source.size_or("sliding_window", 512);
  local.rope = read_rope(source, "sliding_attention", local.head_size);
  full.rope = read_rope(source, "full_attention", full.head_size);
  bool wide = source.flag_or("use_double_wide_mlp", true);
  for (size_t i = 0; i < sliding.size(); ++i) {
    Gemma4LayerSpec layer;
    layer.block = sliding[i] ? local : full;
    layer.has_keys = i < with_keys;
    layer.values_are_keys = values_are_keys && !sliding[i];
    layer.per_layer_input = config.per_layer_input;
    if (source.flag_or("enable_moe_block", false)) {
      layer.experts = source.size("num_experts");
      layer.experts_per_token =
          static_cast<int>(view.integer("top_k_experts", 1, layer.experts));
      layer.expert_size = source.size("moe_intermediate_size");
    }
    if (wide && !layer.has_keys && with_keys > 0) {
      layer.block.intermediate_size *= 2;
    }
    config.layers.push_back(layer);
  }
  decoder.layers.clear();
  return config;
}

mx::array scaled(const mx::array& x, double by) {
  return mx::multiply(x, mx::array(static_cast<float>(by), x.dtype()));
}

class Gemma4Model : public Model {
 public:
  explicit Gemma4Model(Config config)
      : config_(std::move(config)),
        embed_tokens_(decoder().vocab_size, decoder().hidden_size),
        norm_(decoder().hidden_size, decoder().final_norm) {
    for (const auto& layer : config_.layers) {
      layers_.emplace_back(layer);
    }
    if (int width = config_.per_layer_input; width > 0) {
      int all = width * static_cast<int>(layers_.size());
      layer_embedding_.emplace(config_.per_layer_vocabulary, all);
      layer_projection_.emplace(decoder().hidden_size, all, false);
      layer_norm_.emplace(width, decoder().final_norm);
    }
    if (!decoder().tied) {
      lm_head_.emplace(decoder().hidden_size, decoder().vocab_size, false);
    }
  }

  ModelSummary summary() const override {
    return summary_of(*this, decoder(), layers_.size());
  }

  // One for each layer with keys of its own.
  cache::CacheList make_cache(const CacheOptions& options) const override {
    cache::CacheList caches;
    for (const auto& layer : layers_) {
      if (layer.spec().has_keys) {
        nn::StateSpec state;
        state.window = layer.spec().block.window;
        caches.push_back(make_layer_cache(state, options));
      }
    }
    return caches;
  }

  mx::array forward(const mx::array& tokens, cache::CacheList& cache)
      const override {
    return head(norm_(trunk(tokens, cache)));
  }

  mx::array forward_last(const mx::array& tokens, cache::CacheList& cache)
      const override {
    mx::array h = last_position(trunk(tokens, cache));
    return mx::squeeze(head(norm_(h)), 1);
  }

  void visit(const ParameterVisitor& visitor) override {
    embed_tokens_.visit("model.embed_tokens", visitor);
    if (layer_embedding_) {
      layer_embedding_->visit("model.embed_tokens_per_layer", visitor);
      layer_projection_->visit("model.per_layer_model_projection", visitor);
      layer_norm_->visit("model.per_layer_projection_norm", visitor);
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].visit(fmt::format("model.layers.{}", i), visitor);
    }
    norm_.visit("model.norm", visitor);
    if (lm_head_) {
      lm_head_->visit("lm_head", visitor);
    }
  }

  void use(const kernels::Selection& selection) override {
    for (auto& layer : layers_) {
      layer.use(selection);
    }
    norm_.use(selection);
    if (layer_norm_) {
      layer_norm_->use(selection);
    }
  }

  bool skips(const std::string& tensor) const override {
    return decoder().tied && tensor == "lm_head.weight";
  }

 private:
  const DecoderSpec& decoder() const {
    return config_.decoder;
  }

  // [B, L, layers, width]: of the token's own embedding and a projection of
  // its usual one.
  mx::array layer_inputs(const mx::array& tokens, const mx::array& h) const {
    int width = config_.per_layer_input;
    auto by_layer = [&](const mx::array& x) {
      return mx::reshape(
          x,
          {x.shape(0), x.shape(1), static_cast<int>(layers_.size()), width});
    };
    mx::array own =
        by_layer(scaled((*layer_embedding_)(tokens), std::sqrt(width)));
    mx::array projected = by_layer(scaled(
        (*layer_projection_)(h),
        std::pow(double{1} * decoder().hidden_size, -0.5)));
    return scaled(mx::add((*layer_norm_)(projected), own), std::pow(2.0, -0.5));
  }

  // Before the last norm: [B, L, E].
  mx::array trunk(const mx::array& tokens, cache::CacheList& cache) const {
    mx::array h = scaled(embed_tokens_(tokens), decoder().embedding_multiplier);
    std::optional<mx::array> inputs;
    if (layer_embedding_) {
      inputs = layer_inputs(tokens, h);
    }
    // Of layers with a window and of full ones.
    std::optional<kernels::AttentionMask> masks[2];
    std::vector<std::optional<Gemma4Keys>> keys(layers_.size());
    for (size_t i = 0; i < layers_.size(); ++i) {
      const auto& spec = layers_[i].spec();
      cache::KVCache* kv =
          spec.has_keys ? &cache::cache_as<cache::KVCache>(*cache[i]) : nullptr;
      auto& mask = masks[spec.block.window > 0 ? 1 : 0];
      if (!mask) {
        mask = kv->make_mask(h.shape(1));
      }
      std::optional<mx::array> input;
      if (inputs) {
        input = mx::take(*inputs, static_cast<int>(i), 2);
      }
      h = layers_[i](h, *mask, kv, keys[config_.keys_from[i]], input);
    }
    return h;
  }

  mx::array head(const mx::array& h) const {
    return logits_of(h, decoder(), lm_head_, embed_tokens_);
  }

  Config config_;
  nn::Embedding embed_tokens_;
  std::optional<nn::Embedding> layer_embedding_;
  std::optional<nn::Linear> layer_projection_;
  std::optional<nn::Norm> layer_norm_;
  std::vector<Gemma4Layer> layers_;
  nn::Norm norm_;
  std::optional<nn::Linear> lm_head_;
};

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  return std::make_unique<Gemma4Model>(read_config(DecoderConfig(checkpoint)));
}

// Ranges of activations, and keys that the last layers do not use.
void rewrite(hub::TensorRewrite& tensors) {
  JsonView config(tensors.config(), "config.json");
  auto layers = config.integer("num_hidden_layers", 1, 4096);
  auto first_shared =
      layers - config.integer_or("num_kv_shared_layers", 20, 0, layers);
  tensors.drop_each(
      [](std::string_view name) {
        return name.ends_with("input_max") || name.ends_with("input_min") ||
            name.ends_with("output_max") || name.ends_with("output_min");
      },
      "range of activations");
  for (int64_t layer :
       tensors.numbers("model.layers.{}.experts.gate_up_proj")) {
    std::string start = fmt::format("model.layers.{}.experts.", layer);
    tensors.split_evenly(
        start + "gate_up_proj",
        1,
        {start + "switch_glu.gate_proj.weight",
         start + "switch_glu.up_proj.weight"});
    tensors.rename(start + "down_proj", start + "switch_glu.down_proj.weight");
  }
  for (const char* part : {"k_proj", "v_proj", "k_norm"}) {
    std::string pattern =
        fmt::format("model.layers.{{}}.self_attn.{}.weight", part);
    for (int64_t layer : tensors.numbers(pattern)) {
      if (layer >= first_shared) {
        tensors.drop(
            fmt::format("model.layers.{}.self_attn.{}.weight", layer, part),
            "keys of an earlier layer are used");
      }
    }
  }
}

constexpr std::string_view kCheckpoints[] = {
    "google/gemma-4-E2B-it",
    "google/gemma-4-E4B-it",
    "google/gemma-4-26B-A4B-it",
    "google/gemma-4-31B-it",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "gemma4_text", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16,
  "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
  "sliding_window": 24, "sliding_window_pattern": 2,
  "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 16,
  "vocab_size_per_layer_input": 96, "tie_word_embeddings": true,
  "enable_moe_block": true, "num_experts": 4, "top_k_experts": 4,
  "moe_intermediate_size": 32
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "gemma4_text",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Gemma 4, text",
    .features = "sliding windows, keys shared by layers, inputs for each layer",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::gemma4_text
