// Decoders that make vectors: Qwen3-Embedding and its like see what came
// before, EmbeddingGemma sees a whole text. The layers are those of the family
// in mlxx/models; here they run over many texts at once, without caches and
// without an output head.
#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/embed/encoder_attention.h"
#include "mlxx/embed/encoder_kinds.h"
#include "mlxx/embed/row_rope.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/block.h"
#include "mlxx/nn/embedding.h"
#include "mlxx/nn/mlp.h"

namespace mlxx::embed {
namespace {

struct Config {
  models::DecoderSpec spec;
  bool causal;
};

// Tells what a spec may hold that the layers below do not compute.
const char* uncovered(const models::DecoderSpec& spec) {
  if (spec.layers.empty() || spec.learned_positions > 0) {
    return "its form of layers or positions";
  }
  for (const auto& layer : spec.layers) {
    if (layer.softcap != 0 || layer.sinks || layer.intermediate_size == 0) {
      return "softcap, sinks or experts";
    }
    if (layer.parallel || layer.query_scale.beta != 0 || !layer.rope) {
      return "parallel branches, scaled queries or layers without rotation";
    }
    if (layer.qk_norm == nn::QkNorm::layer_per_head) {
      return "its norms of queries and keys";
    }
  }
  return nullptr;
}

Config read_config(const hub::Checkpoint& checkpoint) {
  JsonView view(checkpoint.config(), "config.json");
  auto model = models::find_model(view.string("model_type")).make(checkpoint);
  const auto* decoder = dynamic_cast<const models::DecoderModel*>(model.get());
  const char* what = decoder ? uncovered(decoder->spec()) : "its layers";
  if (what) {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "{} of model_type '{}' cannot be computed for embeddings",
        what,
        view.string("model_type"));
  }
  Config config{decoder->spec(), true};
  auto& spec = config.spec;
  if (!checkpoint.tensors().empty() && !has_prefix(checkpoint, "model.")) {
    // Saved without a head, the decoder itself is the whole.
    spec.embedding = "embed_tokens";
    spec.layer_list = "layers";
    spec.norm = "norm";
  }
  config.causal = !view.boolean_or("use_bidirectional_attention", false);
  return config;
}

class DecoderEncoderLayer {
 public:
  DecoderEncoderLayer(const nn::LayerSpec& spec, bool causal)
      : spec_(spec),
        causal_(causal),
        q_(spec.hidden_size, spec.heads * spec.head_size, spec.qkv_bias),
        k_(spec.hidden_size, spec.kv_heads * spec.head_size, spec.qkv_bias),
        v_(spec.hidden_size, spec.kv_heads * spec.head_size, spec.qkv_bias),
        o_(spec.heads * spec.head_size, spec.hidden_size, spec.output_bias),
        mlp_(spec) {
    if (spec.qk_norm != nn::QkNorm::none) {
      bool per_head = spec.qk_norm == nn::QkNorm::per_head;
      int heads = per_head ? 1 : spec.heads;
      int kv_heads = per_head ? 1 : spec.kv_heads;
      q_norm_.emplace(heads * spec.head_size, spec.norm);
      k_norm_.emplace(kv_heads * spec.head_size, spec.norm);
    }
    for (const auto& name : norm_names()) {
      norms_.push_back(
          name.empty() ? std::nullopt
                       : std::optional<nn::Norm>(
                             std::in_place,
                             spec.hidden_size,
                             spec.norm));
    }
  }

  // h [T, E] -> [T, E]
  mx::array operator()(
      const mx::array& h,
      const TokenRows& rows,
      const RowRotation& rotate,
      const kernels::Selection& selection) const {
    mx::array n = normed(0, h);
    mx::array seen = kernels::ragged_attention(
        rotate(heads_of(q_(n), spec_.heads, q_norm_)),
        rotate(heads_of(k_(n), spec_.kv_heads, k_norm_)),
        split_row_heads(v_(n), spec_.kv_heads),
        {rows.lengths(), spec_.attention_scale, reach(), causal_},
        selection);
    mx::array x = add(h, normed(1, o_(join_row_heads(seen))));
    return add(x, normed(3, mlp_(normed(2, x))));
  }

  void visit(const std::string& prefix, const ParameterVisitor& visitor) {
    const auto& names = spec_.names;
    std::string attention = prefix + "." + names.attention + ".";
    q_.visit(attention + names.q, visitor);
    k_.visit(attention + names.k, visitor);
    v_.visit(attention + names.v, visitor);
    o_.visit(attention + names.o, visitor);
    if (q_norm_) {
      q_norm_->visit(attention + names.q_norm, visitor);
      k_norm_->visit(attention + names.k_norm, visitor);
    }
    mlp_.visit(prefix + "." + names.mlp, visitor);
    auto norms = norm_names();
    for (size_t i = 0; i < norms_.size(); ++i) {
      if (norms_[i]) {
        norms_[i]->visit(prefix + "." + norms[i], visitor);
      }
    }
  }

  void use(const kernels::Selection& selection) {
    mlp_.use(selection);
    for (auto* norm : {&q_norm_, &k_norm_}) {
      if (*norm) {
        (*norm)->use(selection);
      }
    }
    for (auto& norm : norms_) {
      if (norm) {
        norm->use(selection);
      }
    }
  }

 private:
  std::vector<std::string> norm_names() const {
    const auto& names = spec_.names;
    return {
        names.before_attention,
        names.after_attention,
        names.before_mlp,
        names.after_mlp};
  }

  // A decoder's window counts the token itself; one that sees both sides has
  // half of it on each.
  int reach() const {
    if (spec_.window == 0) {
      return 0;
    }
    return causal_ ? spec_.window - 1 : spec_.window / 2;
  }

  mx::array normed(size_t index, const mx::array& x) const {
    return norms_[index] ? (*norms_[index])(x) : x;
  }

  mx::array heads_of(
      const mx::array& x,
      int heads,
      const std::optional<nn::Norm>& norm) const {
    switch (spec_.qk_norm) {
      case nn::QkNorm::per_head:
        return (*norm)(split_row_heads(x, heads));
      case nn::QkNorm::whole_width:
        return split_row_heads((*norm)(x), heads);
      default:
        return split_row_heads(x, heads);
    }
  }

  mx::array add(const mx::array& x, const mx::array& y) const {
    return nn::add_residual(
        x,
        y,
        spec_.residual_multiplier,
        spec_.clip_residual);
  }

  nn::LayerSpec spec_;
  bool causal_;
  nn::Linear q_;
  nn::Linear k_;
  nn::Linear v_;
  nn::Linear o_;
  std::optional<nn::Norm> q_norm_;
  std::optional<nn::Norm> k_norm_;
  nn::Mlp mlp_;
  std::vector<std::optional<nn::Norm>> norms_;  // in the order of norm_names()
};

class DecoderEncoder : public Encoder {
 public:
  explicit DecoderEncoder(Config config)
      : config_(std::move(config)),
        embedding_(config_.spec.vocab_size, config_.spec.hidden_size),
        norm_(config_.spec.hidden_size, config_.spec.final_norm) {
    for (const auto& layer : config_.spec.layers) {
      layers_.emplace_back(layer, config_.causal);
    }
  }

  Summary summary() const override {
    return {
        .model_type = config_.spec.model_type,
        .layers = static_cast<int>(layers_.size()),
        .hidden_size = config_.spec.hidden_size,
        .vocab_size = config_.spec.vocab_size,
        .max_tokens = config_.spec.max_position_embeddings,
        .default_pooling =
            config_.causal ? Pooling::last_token : Pooling::mean};
  }

  mx::array forward(const TokenRows& rows) const override {
    std::map<const nn::Rope*, RowRotation> rotations;
    mx::array h = embedding_(rows.ids());
    if (config_.spec.embedding_multiplier != 1) {
      // In the dtype of the vectors, as transformers rounds it.
      h = mx::multiply(
          h,
          mx::array(config_.spec.embedding_multiplier, h.dtype()));
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      const nn::Rope* rope = config_.spec.layers[i].rope.get();
      auto rotation = rotations.try_emplace(rope, *rope, rows).first;
      h = layers_[i](h, rows, rotation->second, selection_);
    }
    return norm_(h);
  }

  void visit(const ParameterVisitor& visitor) override {
    embedding_.visit(config_.spec.embedding, visitor);
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].visit(
          fmt::format("{}.{}", config_.spec.layer_list, i),
          visitor);
    }
    norm_.visit(config_.spec.norm, visitor);
  }

  void use(const kernels::Selection& selection) override {
    selection_ = selection;
    norm_.use(selection);
    for (auto& layer : layers_) {
      layer.use(selection);
    }
  }

  // The output head and precomputed frequencies.
  bool skips(const std::string& tensor) const override {
    return tensor == config_.spec.head + ".weight" ||
        tensor.ends_with("rotary_emb.inv_freq");
  }

 private:
  Config config_;
  nn::Embedding embedding_;
  std::vector<DecoderEncoderLayer> layers_;
  nn::Norm norm_;
  kernels::Selection selection_;
};

}  // namespace

std::unique_ptr<Encoder> make_decoder_encoder(
    const hub::Checkpoint& checkpoint,
    EncoderPurpose purpose) {
  if (purpose == EncoderPurpose::scores) {
    JsonView view(checkpoint.config(), "config.json");
    fail(
        ErrorKind::unsupported,
        view.place(),
        "a classification head on a '{}' is not implemented",
        view.string("model_type"));
  }
  return std::make_unique<DecoderEncoder>(read_config(checkpoint));
}

}  // namespace mlxx::embed
