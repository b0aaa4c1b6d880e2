// ModernBERT: pre-norm blocks without biases, rotary positions, gated GELU
// networks, and layers that see all tokens among such as see their neighbours
// only. Reference: Warner et al. 2024 (arXiv:2412.13663); names of tensors and
// the head as in transformers 5.24, models/modernbert.
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/embed/encoder_attention.h"
#include "mlxx/embed/encoder_kinds.h"
#include "mlxx/embed/row_rope.h"
#include "mlxx/kernels/activation/activation.h"
#include "mlxx/nn/embedding.h"
#include "mlxx/nn/linear.h"
#include "mlxx/nn/norm.h"

namespace mlxx::embed {
namespace {

struct Config {
  std::string prefix;  // "" or "model."
  int vocab_size;
  int hidden_size;
  int intermediate_size;
  int heads;
  int max_positions;
  int reach;                   // of a local layer, to either side
  std::vector<bool> is_local;  // per layer
  std::shared_ptr<const nn::Rope> global_rope;
  std::shared_ptr<const nn::Rope> local_rope;
  bool attention_bias;
  bool mlp_bias;
  nn::NormSpec norm;
  kernels::Activation activation;
  // Of the head.
  int labels;
  bool pools_mean;
  bool head_bias;
  kernels::Activation head_activation;
};

std::vector<bool> read_local_layers(const JsonView& view, int layers) {
  std::vector<bool> is_local;
  auto types = view.strings_or_empty("layer_types");
  if (types.empty()) {
    auto every = view.integer_or("global_attn_every_n_layers", 3, 1, 4096);
    for (int i = 0; i < layers; ++i) {
      is_local.push_back(i % every != 0);
    }
    return is_local;
  }
  if (types.size() != static_cast<size_t>(layers)) {
    view.fail_at(
        "layer_types",
        fmt::format("has {} entries for {} layers", types.size(), layers));
  }
  for (const auto& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      fail(
          ErrorKind::unsupported,
          view.place(),
          "layer type '{}' is not known to modernbert",
          type);
    }
    is_local.push_back(type == "sliding_attention");
  }
  return is_local;
}

// transformers 5 has one object for each kind of layer, before it were two
// numbers.
std::shared_ptr<const nn::Rope> read_rope(
    const JsonView& view,
    const char* kind,
    const char* old_key,
    double default_base,
    int head_size) {
  nn::RopeOptions options;
  options.dims = head_size;
  std::optional<JsonView> parameters;
  if (view.has("rope_parameters")) {
    JsonView all = view.object("rope_parameters");
    if (all.has(kind)) {
      parameters = all.object(kind);
    }
  }
  double base = view.number_or(old_key, default_base);
  options.base = parameters ? parameters->number_or("rope_theta", base) : base;
  return nn::make_rope(options, parameters);
}

Config read_config(const hub::Checkpoint& checkpoint, EncoderPurpose purpose) {
  constexpr int kMaxSize = 1 << 20;
  JsonView view(checkpoint.config(), "config.json");
  auto size = [&](const char* key) {
    return static_cast<int>(view.integer(key, 1, kMaxSize));
  };
  Config config;
  bool is_inner =
      checkpoint.tensors().empty() || has_prefix(checkpoint, "model.");
  config.prefix = is_inner ? "model." : "";
  config.vocab_size = static_cast<int>(view.integer("vocab_size", 1, 1 << 24));
  config.hidden_size = size("hidden_size");
  config.intermediate_size = size("intermediate_size");
  config.heads = static_cast<int>(view.integer("num_attention_heads", 1, 4096));
  if (config.hidden_size % config.heads != 0 ||
      config.hidden_size / config.heads % 2 != 0) {
    view.fail_at(
        "num_attention_heads",
        fmt::format(
            "is {}, which does not divide hidden_size {} into heads of even "
            "size",
            config.heads,
            config.hidden_size));
  }
  config.max_positions = static_cast<int>(
      view.integer_or("max_position_embeddings", 8192, 1, kMaxSize));
  config.reach =
      static_cast<int>(view.integer_or("local_attention", 128, 2, kMaxSize)) /
      2;
  int layers = static_cast<int>(view.integer("num_hidden_layers", 1, 4096));
  config.is_local = read_local_layers(view, layers);
  int head_size = config.hidden_size / config.heads;
  config.global_rope =
      read_rope(view, "full_attention", "global_rope_theta", 160000, head_size);
  config.local_rope = read_rope(
      view,
      "sliding_attention",
      "local_rope_theta",
      10000,
      head_size);
  config.attention_bias = view.boolean_or("attention_bias", false);
  config.mlp_bias = view.boolean_or("mlp_bias", false);
  config.norm = {
      .kind = nn::NormSpec::Kind::layer,
      .eps = static_cast<float>(view.number_or("norm_eps", 1e-5)),
      .bias = view.boolean_or("norm_bias", false)};
  config.activation = kernels::activation_named(
      view.place(),
      view.string_or("hidden_activation", "gelu"));
  config.labels = purpose == EncoderPurpose::scores ? read_labels(view) : 0;
  auto pooling = view.string_or("classifier_pooling", "cls");
  if (config.labels > 0 && pooling != "cls" && pooling != "mean") {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "classifier_pooling '{}' is not 'cls' or 'mean'",
        pooling);
  }
  config.pools_mean = pooling == "mean";
  config.head_bias = view.boolean_or("classifier_bias", false);
  config.head_activation = kernels::activation_named(
      view.place(),
      view.string_or("classifier_activation", "gelu"));
  return config;
}

// Numbers [begin, begin + count) of each row.
mx::array columns(const mx::array& x, int begin, int count) {
  return mx::slice(x, {0, begin}, {x.shape(0), begin + count});
}

class ModernBertLayer {
 public:
  ModernBertLayer(const Config& config, int index)
      : heads_(config.heads),
        reach_(config.is_local[index] ? config.reach : 0),
        activation_(config.activation),
        qkv_(config.hidden_size, 3 * config.hidden_size, config.attention_bias),
        output_(config.hidden_size, config.hidden_size, config.attention_bias),
        mlp_norm_(config.hidden_size, config.norm),
        gated_(
            config.hidden_size,
            2 * config.intermediate_size,
            config.mlp_bias),
        down_(config.intermediate_size, config.hidden_size, config.mlp_bias) {
    // The first layer reads what the embedding's norm wrote.
    if (index > 0) {
      attention_norm_.emplace(config.hidden_size, config.norm);
    }
  }

  // h [T, E] -> [T, E]
  mx::array operator()(
      const mx::array& h,
      const TokenRows& rows,
      const RowRotation& rotate,
      const kernels::Selection& selection) const {
    int size = h.shape(1);
    mx::array qkv = qkv_(attention_norm_ ? (*attention_norm_)(h) : h);
    auto part = [&](int i) {
      return split_row_heads(columns(qkv, i * size, size), heads_);
    };
    float head_size = static_cast<float>(size / heads_);
    mx::array seen = kernels::ragged_attention(
        rotate(part(0)),
        rotate(part(1)),
        part(2),
        {rows.lengths(), 1.0f / std::sqrt(head_size), reach_},
        selection);
    mx::array x = mx::add(h, output_(join_row_heads(seen)));
    mx::array both = gated_(mlp_norm_(x));
    int width = both.shape(1) / 2;
    mx::array inner = kernels::gated_activation(
        columns(both, 0, width),
        columns(both, width, width),
        activation_,
        selection);
    return mx::add(x, down_(inner));
  }

  void visit(const std::string& prefix, const ParameterVisitor& visitor) {
    if (attention_norm_) {
      attention_norm_->visit(prefix + ".attn_norm", visitor);
    }
    qkv_.visit(prefix + ".attn.Wqkv", visitor);
    output_.visit(prefix + ".attn.Wo", visitor);
    mlp_norm_.visit(prefix + ".mlp_norm", visitor);
    gated_.visit(prefix + ".mlp.Wi", visitor);
    down_.visit(prefix + ".mlp.Wo", visitor);
  }

  void use(const kernels::Selection& selection) {
    if (attention_norm_) {
      attention_norm_->use(selection);
    }
    mlp_norm_.use(selection);
  }

 private:
  int heads_;
  int reach_;
  kernels::Activation activation_;
  std::optional<nn::Norm> attention_norm_;
  nn::Linear qkv_;
  nn::Linear output_;
  nn::Norm mlp_norm_;
  nn::Linear gated_;
  nn::Linear down_;
};

class ModernBertEncoder : public Encoder {
 public:
  explicit ModernBertEncoder(Config config)
      : config_(std::move(config)),
        embedding_(config_.vocab_size, config_.hidden_size),
        embedding_norm_(config_.hidden_size, config_.norm),
        final_norm_(config_.hidden_size, config_.norm) {
    for (size_t i = 0; i < config_.is_local.size(); ++i) {
      layers_.emplace_back(config_, static_cast<int>(i));
    }
    if (config_.labels > 0) {
      int size = config_.hidden_size;
      head_.emplace(Head{
          nn::Linear(size, size, config_.head_bias),
          nn::Norm(size, config_.norm),
          nn::Linear(size, config_.labels, true)});
    }
  }

  Summary summary() const override {
    return {
        .model_type = "modernbert",
        .layers = static_cast<int>(layers_.size()),
        .hidden_size = config_.hidden_size,
        .vocab_size = config_.vocab_size,
        .max_tokens = config_.max_positions,
        .labels = config_.labels};
  }

  mx::array forward(const TokenRows& rows) const override {
    RowRotation global(*config_.global_rope, rows);
    RowRotation local(*config_.local_rope, rows);
    mx::array h = embedding_norm_(embedding_(rows.ids()));
    for (size_t i = 0; i < layers_.size(); ++i) {
      h = layers_[i](h, rows, config_.is_local[i] ? local : global, selection_);
    }
    return final_norm_(h);
  }

  mx::array classify(const mx::array& hidden, const TokenRows& rows)
      const override {
    if (!head_) {
      return Encoder::classify(hidden, rows);
    }
    mx::array pooled = config_.pools_mean
        ? mx::astype(pool(hidden, rows, Pooling::mean), hidden.dtype())
        : pool(hidden, rows, Pooling::cls);
    mx::array inner = kernels::activate(
        head_->dense(pooled),
        config_.head_activation,
        selection_);
    return head_->classifier(head_->norm(inner));
  }

  void visit(const ParameterVisitor& visitor) override {
    const auto& prefix = config_.prefix;
    embedding_.visit(prefix + "embeddings.tok_embeddings", visitor);
    embedding_norm_.visit(prefix + "embeddings.norm", visitor);
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].visit(fmt::format("{}layers.{}", prefix, i), visitor);
    }
    final_norm_.visit(prefix + "final_norm", visitor);
    if (head_) {
      head_->dense.visit("head.dense", visitor);
      head_->norm.visit("head.norm", visitor);
      head_->classifier.visit("classifier", visitor);
    }
  }

  void use(const kernels::Selection& selection) override {
    selection_ = selection;
    embedding_norm_.use(selection);
    final_norm_.use(selection);
    for (auto& layer : layers_) {
      layer.use(selection);
    }
  }

  // The output of masked language modelling, and a head that is not asked for.
  bool skips(const std::string& tensor) const override {
    return tensor.starts_with("decoder.") ||
        (!head_ &&
         (tensor.starts_with("head.") || tensor.starts_with("classifier.")));
  }

 private:
  struct Head {
    nn::Linear dense;
    nn::Norm norm;
    nn::Linear classifier;
  };

  Config config_;
  nn::Embedding embedding_;
  nn::Norm embedding_norm_;
  std::vector<ModernBertLayer> layers_;
  nn::Norm final_norm_;
  std::optional<Head> head_;
  kernels::Selection selection_;
};

}  // namespace

std::unique_ptr<Encoder> make_modern_bert(
    const hub::Checkpoint& checkpoint,
    EncoderPurpose purpose) {
  return std::make_unique<ModernBertEncoder>(read_config(checkpoint, purpose));
}

}  // namespace mlxx::embed
