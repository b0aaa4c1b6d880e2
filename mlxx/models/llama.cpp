// Llama and Mistral: pre-norm blocks of grouped-query attention with rotary
// positions and a SwiGLU network. Reference: mlx-lm 0.32.2, models/llama.py.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/rotating.h"
#include "mlxx/models/fused_decoder.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/block.h"
#include "mlxx/nn/embedding.h"

namespace mlxx::models::llama {

extern const ModelInfo kInfo;

namespace {

// The first tokens stay when --max-kv-size drops old ones: attention leans on
// them.
constexpr int kTokensKept = 4;

struct Config {
  std::string model_type;
  int vocab_size;
  int layers;
  int max_position_embeddings;
  nn::LayerSpec layer;
  std::vector<bool> sliding;  // per layer
  int sliding_window;
  bool tied;
};

bool has_tensor(const hub::Checkpoint& checkpoint, std::string_view name) {
  return std::ranges::any_of(checkpoint.tensors(), [&](const auto& t) {
    return t.name == name;
  });
}

bool same_weights(const hub::Weight& a, const hub::Weight& b) {
  auto equal = [](const std::optional<mx::array>& x,
                  const std::optional<mx::array>& y) {
    return x.has_value() == y.has_value() &&
        (!x || mx::array_equal(*x, *y).item<bool>());
  };
  return equal(a.weight, b.weight) && equal(a.scales, b.scales) &&
      equal(a.biases, b.biases);
}

// Whether the output head is the embedding. A nested text_config wins; where
// no config says it, the presence of a head decides. A head beside a tied
// embedding is dropped, with a warning if it holds something else.
bool read_tied(const JsonView& config, const hub::Checkpoint& checkpoint) {
  constexpr auto kKey = "tie_word_embeddings";
  bool has_head = has_tensor(checkpoint, "lm_head.weight");
  bool tied = config.boolean_or(kKey, !has_head);
  if (config.has("text_config")) {
    tied = config.object("text_config").boolean_or(kKey, tied);
  }
  if (!tied && !has_head && !checkpoint.tensors().empty()) {
    log_warning(
        "{}: not tied, but without lm_head.weight: the embedding is used",
        checkpoint.path().string());
    return true;
  }
  constexpr auto kEmbedding = "model.embed_tokens.weight";
  if (tied && has_head && has_tensor(checkpoint, kEmbedding) &&
      !same_weights(
          checkpoint.load("lm_head.weight", {}),
          checkpoint.load(kEmbedding, {}))) {
    log_warning(
        "{}: tied, yet lm_head.weight differs from the embedding; the "
        "embedding is used",
        checkpoint.path().string());
  }
  return tied;
}

std::vector<bool> read_sliding(const JsonView& config, int layers) {
  auto types = config.strings_or_empty("layer_types");
  if (types.empty()) {
    return std::vector<bool>(layers, false);
  }
  if (types.size() != static_cast<size_t>(layers)) {
    config.fail_at(
        "layer_types",
        fmt::format("has {} entries for {} layers", types.size(), layers));
  }
  std::vector<bool> sliding;
  for (const auto& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      fail(
          ErrorKind::unsupported,
          config.place(),
          "layer type '{}' is not known to llama",
          type);
    }
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

std::shared_ptr<const nn::Rope>
read_rope(const JsonView& config, int head_size, int max_position_embeddings) {
  // transformers 5 moved base and scaling into one object.
  std::optional<JsonView> parameters;
  if (config.has("rope_parameters")) {
    parameters = config.object("rope_parameters");
  }
  nn::RopeOptions options;
  options.dims = head_size;
  options.base = config.number_or(
      "rope_theta",
      parameters ? parameters->number_or("rope_theta", 10000) : 10000);
  options.traditional = config.boolean_or("rope_traditional", false);
  options.max_position_embeddings = max_position_embeddings;
  return nn::make_rope(
      options,
      config.has("rope_scaling") ? config.object("rope_scaling") : parameters);
}

Config read_config(const hub::Checkpoint& checkpoint) {
  constexpr int kMaxSize = 1 << 20;
  JsonView view(checkpoint.config(), "config.json");
  Config config;
  auto& layer = config.layer;
  config.model_type = view.string("model_type");
  config.vocab_size = static_cast<int>(view.integer("vocab_size", 1, 1 << 24));
  config.layers = static_cast<int>(view.integer("num_hidden_layers", 1, 4096));
  config.max_position_embeddings = static_cast<int>(
      view.integer_or("max_position_embeddings", 0, 0, INT32_MAX));
  layer.hidden_size =
      static_cast<int>(view.integer("hidden_size", 1, kMaxSize));
  layer.intermediate_size =
      static_cast<int>(view.integer("intermediate_size", 1, kMaxSize));
  layer.heads = static_cast<int>(view.integer("num_attention_heads", 1, 4096));
  layer.kv_heads = static_cast<int>(
      view.integer_or("num_key_value_heads", layer.heads, 1, layer.heads));
  if (layer.heads % layer.kv_heads != 0) {
    view.fail_at(
        "num_key_value_heads",
        fmt::format(
            "is {}, which does not divide {} heads",
            layer.kv_heads,
            layer.heads));
  }
  layer.head_size = static_cast<int>(view.integer_or("head_dim", 0, 0, 8192));
  if (layer.head_size == 0) {
    layer.head_size = layer.hidden_size / layer.heads;
  }
  layer.attention_scale = static_cast<float>(std::pow(layer.head_size, -0.5));
  layer.norm_eps = static_cast<float>(view.number("rms_norm_eps"));
  bool attention_bias = view.boolean_or("attention_bias", false);
  layer.qkv_bias = attention_bias;
  layer.output_bias = attention_bias;
  layer.mlp_bias = view.boolean_or("mlp_bias", false);
  auto activation = view.string_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "hidden_act '{}' is not llama's silu",
        activation);
  }
  layer.rope = read_rope(view, layer.head_size, config.max_position_embeddings);
  config.sliding = read_sliding(view, config.layers);
  // Without layer_types the window has no effect, as in mlx-lm.
  config.sliding_window = 0;
  if (std::ranges::find(config.sliding, true) != config.sliding.end()) {
    config.sliding_window =
        static_cast<int>(view.integer("sliding_window", 1, INT32_MAX));
  }
  config.tied = read_tied(view, checkpoint);
  return config;
}

class LlamaModel : public Model {
 public:
  explicit LlamaModel(Config config)
      : config_(std::move(config)),
        embed_tokens_(config_.vocab_size, config_.layer.hidden_size),
        norm_(config_.layer.hidden_size, config_.layer.norm_eps) {
    for (int i = 0; i < config_.layers; ++i) {
      nn::LayerSpec spec = config_.layer;
      spec.window = config_.sliding[i] ? config_.sliding_window : 0;
      layers_.emplace_back(spec);
    }
    if (!config_.tied) {
      lm_head_.emplace(config_.layer.hidden_size, config_.vocab_size, false);
    }
  }

  ModelSummary summary() const override {
    ModelSummary summary;
    summary.model_type = config_.model_type;
    summary.layers = config_.layers;
    summary.hidden_size = config_.layer.hidden_size;
    summary.vocab_size = config_.vocab_size;
    summary.max_position_embeddings = config_.max_position_embeddings;
    Model::visit([&](const std::string&, const Parameter& parameter) {
      summary.parameters += parameter.count();
      summary.weight_bytes += parameter.nbytes();
    });
    return summary;
  }

  cache::CacheList make_cache(const CacheOptions& options) const override {
    int limit = options.max_kv_size;
    if (fused_ && limit == 0 && !options.per_layer) {
      return fused_->make_cache();
    }
    cache::CacheList caches;
    for (bool sliding : config_.sliding) {
      if (sliding) {
        int window = config_.sliding_window;
        caches.push_back(std::make_unique<cache::RotatingCache>(
            limit > 0 ? std::min(limit, window) : window));
      } else if (limit > 0) {
        caches.push_back(
            std::make_unique<cache::RotatingCache>(limit, kTokensKept));
      } else {
        caches.push_back(std::make_unique<cache::DenseCache>());
      }
    }
    return caches;
  }

  mx::array forward(const mx::array& tokens, cache::CacheList& cache)
      const override {
    if (FusedDecoder::made(cache)) {
      return (*fused_)(tokens, cache, kernels::LogitRows::all);
    }
    return head(norm_(trunk(tokens, cache)));
  }

  mx::array forward_last(const mx::array& tokens, cache::CacheList& cache)
      const override {
    if (FusedDecoder::made(cache)) {
      return (*fused_)(tokens, cache, kernels::LogitRows::last_of_each);
    }
    mx::array h = trunk(tokens, cache);
    int last = h.shape(1) - 1;
    h = mx::slice(h, {0, last, 0}, {h.shape(0), last + 1, h.shape(2)});
    return mx::squeeze(head(norm_(h)), 1);
  }

  void visit(const ParameterVisitor& visitor) override {
    embed_tokens_.visit("model.embed_tokens", visitor);
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
    std::string why;
    fused_ = FusedDecoder::make(
        {embed_tokens_, layers_, norm_, lm_head_ ? &*lm_head_ : nullptr},
        selection,
        why);
    if (!fused_) {
      log_debug("llama: operations layer by layer, since {}", why);
    }
  }

  bool skips(const std::string& tensor) const override {
    return tensor.find("self_attn.rotary_emb.inv_freq") != std::string::npos ||
        (config_.tied && tensor == "lm_head.weight");
  }

 private:
  // Before the last norm: [B, L, E].
  mx::array trunk(const mx::array& tokens, cache::CacheList& cache) const {
    mx::array h = embed_tokens_(tokens);
    // One mask for all full layers and one for all sliding ones, from the
    // first cache of each kind.
    std::optional<kernels::AttentionMask> masks[2];
    for (size_t i = 0; i < layers_.size(); ++i) {
      auto& mask = masks[config_.sliding[i] ? 1 : 0];
      if (!mask) {
        mask = cache[i]->make_mask(h.shape(1));
      }
      h = layers_[i](h, *mask, *cache[i]);
    }
    return h;
  }

  mx::array head(const mx::array& h) const {
    return lm_head_ ? (*lm_head_)(h) : embed_tokens_.as_linear(h);
  }

  Config config_;
  nn::Embedding embed_tokens_;
  std::vector<nn::TransformerBlock> layers_;
  nn::RMSNorm norm_;
  std::optional<nn::Linear> lm_head_;
  std::optional<FusedDecoder> fused_;
};

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  return std::make_unique<LlamaModel>(read_config(checkpoint));
}

constexpr std::string_view kAliases[] = {"mistral"};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "llama", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false,
  "layer_types": ["full_attention", "sliding_attention", "full_attention"],
  "sliding_window": 24
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "llama",
    .aliases = kAliases,
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Llama 1 to 3, Mistral 7B, SmolLM and other models of that form",
};

}  // namespace mlxx::models::llama
