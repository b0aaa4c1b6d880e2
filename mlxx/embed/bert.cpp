// BERT and RoBERTa: post-norm blocks with learned positions and token types.
// References: Devlin et al. 2019 (arXiv:1810.04805) and Liu et al. 2019
// (arXiv:1907.11692); names of tensors and the heads as in transformers 5.24,
// models/bert and models/roberta.
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/embed/encoder_attention.h"
#include "mlxx/embed/encoder_kinds.h"
#include "mlxx/kernels/activation/activation.h"
#include "mlxx/nn/embedding.h"
#include "mlxx/nn/linear.h"
#include "mlxx/nn/norm.h"

namespace mlxx::embed {
namespace {

struct Config {
  std::string model_type;
  bool is_roberta;
  std::string prefix;  // "", "bert." or "roberta."
  int vocab_size;
  int hidden_size;
  int intermediate_size;
  int layers;
  int heads;
  int positions;  // rows of the table
  // RoBERTa's first token has the position after that of padding.
  int first_position;
  int types;
  int labels;
  nn::NormSpec norm;
  kernels::Activation activation;
};

Config read_config(const hub::Checkpoint& checkpoint, EncoderPurpose purpose) {
  constexpr int kMaxSize = 1 << 20;
  JsonView view(checkpoint.config(), "config.json");
  auto size = [&](const char* key) {
    return static_cast<int>(view.integer(key, 1, kMaxSize));
  };
  Config config;
  config.model_type = view.string("model_type");
  config.is_roberta = config.model_type != "bert";
  config.prefix = config.is_roberta ? "roberta." : "bert.";
  if (!checkpoint.tensors().empty() && !has_prefix(checkpoint, config.prefix)) {
    config.prefix = "";
  }
  config.vocab_size = static_cast<int>(view.integer("vocab_size", 1, 1 << 24));
  config.hidden_size = size("hidden_size");
  config.intermediate_size = size("intermediate_size");
  config.layers = static_cast<int>(view.integer("num_hidden_layers", 1, 4096));
  config.heads = static_cast<int>(view.integer("num_attention_heads", 1, 4096));
  if (config.hidden_size % config.heads != 0) {
    view.fail_at(
        "num_attention_heads",
        fmt::format(
            "is {}, which does not divide hidden_size {}",
            config.heads,
            config.hidden_size));
  }
  config.positions = size("max_position_embeddings");
  config.types = static_cast<int>(
      view.integer_or("type_vocab_size", config.is_roberta ? 1 : 2, 1, 1024));
  config.first_position = config.is_roberta
      ? static_cast<int>(view.integer_or("pad_token_id", 1, 0, kMaxSize)) + 1
      : 0;
  if (config.first_position >= config.positions) {
    view.fail_at("max_position_embeddings", "leaves no position for a token");
  }
  auto kind = view.string_or("position_embedding_type", "absolute");
  if (kind != "absolute") {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "position_embedding_type '{}' is not 'absolute'",
        kind);
  }
  if (view.boolean_or("is_decoder", false)) {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "is_decoder: this {} is no encoder",
        config.model_type);
  }
  config.norm = {
      .kind = nn::NormSpec::Kind::layer,
      .eps = static_cast<float>(view.number_or("layer_norm_eps", 1e-12)),
      .bias = true};
  config.activation = kernels::activation_named(
      view.place(),
      view.string_or("hidden_act", "gelu"));
  config.labels = purpose == EncoderPurpose::scores ? read_labels(view) : 0;
  return config;
}

class BertLayer {
 public:
  explicit BertLayer(const Config& config)
      : heads_(config.heads),
        activation_(config.activation),
        query_(config.hidden_size, config.hidden_size, true),
        key_(config.hidden_size, config.hidden_size, true),
        value_(config.hidden_size, config.hidden_size, true),
        output_(config.hidden_size, config.hidden_size, true),
        attention_norm_(config.hidden_size, config.norm),
        up_(config.hidden_size, config.intermediate_size, true),
        down_(config.intermediate_size, config.hidden_size, true),
        norm_(config.hidden_size, config.norm) {}

  // h [T, E] -> [T, E]
  mx::array operator()(
      const mx::array& h,
      const TokenRows& rows,
      const kernels::Selection& selection) const {
    auto head_rows = [&](const nn::Linear& projection) {
      return split_row_heads(projection(h), heads_);
    };
    float head_size = static_cast<float>(h.shape(1) / heads_);
    mx::array seen = kernels::ragged_attention(
        head_rows(query_),
        head_rows(key_),
        head_rows(value_),
        {rows.lengths(), 1.0f / std::sqrt(head_size)},
        selection);
    mx::array x = attention_norm_(mx::add(output_(join_row_heads(seen)), h));
    return norm_(
        mx::add(down_(kernels::activate(up_(x), activation_, selection)), x));
  }

  void visit(const std::string& prefix, const ParameterVisitor& visitor) {
    query_.visit(prefix + ".attention.self.query", visitor);
    key_.visit(prefix + ".attention.self.key", visitor);
    value_.visit(prefix + ".attention.self.value", visitor);
    output_.visit(prefix + ".attention.output.dense", visitor);
    attention_norm_.visit(prefix + ".attention.output.LayerNorm", visitor);
    up_.visit(prefix + ".intermediate.dense", visitor);
    down_.visit(prefix + ".output.dense", visitor);
    norm_.visit(prefix + ".output.LayerNorm", visitor);
  }

  void use(const kernels::Selection& selection) {
    attention_norm_.use(selection);
    norm_.use(selection);
  }

 private:
  int heads_;
  kernels::Activation activation_;
  nn::Linear query_;
  nn::Linear key_;
  nn::Linear value_;
  nn::Linear output_;
  nn::Norm attention_norm_;
  nn::Linear up_;
  nn::Linear down_;
  nn::Norm norm_;
};

class BertEncoder : public Encoder {
 public:
  explicit BertEncoder(Config config)
      : config_(std::move(config)),
        words_(config_.vocab_size, config_.hidden_size),
        positions_(config_.positions, config_.hidden_size),
        types_(config_.types, config_.hidden_size),
        norm_(config_.hidden_size, config_.norm) {
    for (int i = 0; i < config_.layers; ++i) {
      layers_.emplace_back(config_);
    }
    if (config_.labels > 0) {
      int size = config_.hidden_size;
      dense_.emplace(size, size, true);
      classifier_.emplace(size, config_.labels, true);
    }
  }

  Summary summary() const override {
    return {
        .model_type = config_.model_type,
        .layers = config_.layers,
        .hidden_size = config_.hidden_size,
        .vocab_size = config_.vocab_size,
        .types = config_.types,
        .max_tokens = config_.positions - config_.first_position,
        .labels = config_.labels};
  }

  mx::array forward(const TokenRows& rows) const override {
    mx::array h = mx::add(
        mx::add(words_(rows.ids()), types_(rows.types())),
        positions_(rows.position_ids(config_.first_position)));
    h = norm_(h);
    for (const auto& layer : layers_) {
      h = layer(h, rows, selection_);
    }
    return h;
  }

  // BERT pools the first token with a dense layer of its own, RoBERTa has one
  // in the head; both are followed by tanh.
  mx::array classify(const mx::array& hidden, const TokenRows& rows)
      const override {
    if (!classifier_) {
      return Encoder::classify(hidden, rows);
    }
    return (*classifier_)(
        mx::tanh((*dense_)(pool(hidden, rows, Pooling::cls))));
  }

  void visit(const ParameterVisitor& visitor) override {
    std::string embeddings = config_.prefix + "embeddings.";
    words_.visit(embeddings + "word_embeddings", visitor);
    positions_.visit(embeddings + "position_embeddings", visitor);
    types_.visit(embeddings + "token_type_embeddings", visitor);
    norm_.visit(embeddings + "LayerNorm", visitor);
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].visit(
          fmt::format("{}encoder.layer.{}", config_.prefix, i),
          visitor);
    }
    if (classifier_) {
      bool is_roberta = config_.is_roberta;
      dense_->visit(
          is_roberta ? "classifier.dense" : config_.prefix + "pooler.dense",
          visitor);
      classifier_->visit(
          is_roberta ? "classifier.out_proj" : "classifier",
          visitor);
    }
  }

  void use(const kernels::Selection& selection) override {
    selection_ = selection;
    norm_.use(selection);
    for (auto& layer : layers_) {
      layer.use(selection);
    }
  }

  // Numbers from 0 that older checkpoints hold, the pooler that nothing here
  // reads, and the heads of pre-training; a classifier only for scores.
  bool skips(const std::string& tensor) const override {
    const auto& prefix = config_.prefix;
    return tensor == prefix + "embeddings.position_ids" ||
        tensor == prefix + "embeddings.token_type_ids" ||
        tensor.starts_with(prefix + "pooler.dense.") ||
        tensor.starts_with("cls.") || tensor.starts_with("lm_head.") ||
        (!classifier_ && tensor.starts_with("classifier."));
  }

 private:
  Config config_;
  nn::Embedding words_;
  nn::Embedding positions_;
  nn::Embedding types_;
  nn::Norm norm_;
  std::vector<BertLayer> layers_;
  std::optional<nn::Linear> dense_;
  std::optional<nn::Linear> classifier_;
  kernels::Selection selection_;
};

}  // namespace

std::unique_ptr<Encoder> make_bert(
    const hub::Checkpoint& checkpoint,
    EncoderPurpose purpose) {
  return std::make_unique<BertEncoder>(read_config(checkpoint, purpose));
}

}  // namespace mlxx::embed
