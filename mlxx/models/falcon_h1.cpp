// Falcon-H1: attention and a Mamba2 mixer side by side in every layer.
// Reference: mlx-lm 0.32.2, models/falcon_h1.py, which folds the published
// multipliers into the weights while it reads them.
#include "mlxx/cache/composite.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/recurrent_tensors.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::falcon_h1 {

extern const ModelInfo kInfo;

namespace {

constexpr int kScanPart = 0;
constexpr int kAttentionPart = 1;

nn::Mamba2Spec read_mixer(const DecoderConfig& config) {
  nn::Mamba2Spec mixer;
  mixer.hidden_size = config.size("hidden_size");
  mixer.heads = config.size("mamba_n_heads");
  mixer.head_size = config.size("mamba_d_head");
  mixer.groups = config.size("mamba_n_groups");
  mixer.state_size = config.size("mamba_d_state");
  mixer.conv_width =
      static_cast<int>(config.view().integer("mamba_d_conv", 2, 64));
  mixer.conv_bias = config.flag_or("mamba_conv_bias", true);
  mixer.in_bias = config.flag_or("mamba_proj_bias", false);
  mixer.out_bias = config.flag_or("projectors_bias", false);
  mixer.dt_lowest = 0;
  mixer.dt_highest = kNoLimit;
  mixer.norm = !config.flag_or("mamba_rms_norm", false) ? nn::ScanNorm::none
      : config.flag_or("mamba_norm_before_gate", false)
      ? nn::ScanNorm::before_gate
      : nn::ScanNorm::after_gate;
  mixer.norm_eps = config.number("rms_norm_eps");
  check_mamba2(config.view(), mixer, "mamba_n_groups");
  int inner = config.size_or("mamba_d_ssm", mixer.inner_size());
  if (inner != mixer.inner_size()) {
    config.view().fail_at(
        "mamba_d_ssm",
        fmt::format(
            "is {}, not {} heads of {}",
            inner,
            mixer.heads,
            mixer.head_size));
  }
  return mixer;
}

// h = x + mamba(norm(x)) + attention(norm(x)); h + mlp(norm(h)).
class ParallelLayer : public nn::DecoderLayer {
 public:
  ParallelLayer(const nn::LayerSpec& spec, const nn::Mamba2Spec& mixer)
      : mamba_(mixer),
        attention_(spec),
        feed_forward_(spec),
        input_layernorm_(spec.hidden_size, spec.norm),
        pre_ff_layernorm_(spec.hidden_size, spec.norm) {}

  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask&,
      cache::LayerCache& cache) const override {
    auto& parts = cache::cache_as<cache::CompositeCache>(cache);
    auto& kv = cache::cache_as<cache::KVCache>(parts.part(kAttentionPart));
    auto mask = kv.make_mask(x.shape(1));
    mx::array n = input_layernorm_(x);
    mx::array scanned = mamba_(n, {}, parts.part(kScanPart));
    mx::array h = mx::add(mx::add(x, scanned), attention_(n, mask, kv));
    return mx::add(h, feed_forward_(pre_ff_layernorm_(h)));
  }

  nn::StateSpec state() const override {
    using Kind = nn::StateSpec::Kind;
    return {
        .kind = Kind::composite,
        .parts = {mamba_.state(), {.kind = Kind::attention}}};
  }

  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override {
    feed_forward_.visit(prefix + ".feed_forward", visitor);
    mamba_.visit(prefix + ".mamba", visitor);
    attention_.visit(prefix + ".self_attn", visitor);
    input_layernorm_.visit(prefix + ".input_layernorm", visitor);
    pre_ff_layernorm_.visit(prefix + ".pre_ff_layernorm", visitor);
  }

  void use(const kernels::Selection& selection) override {
    mamba_.use(selection);
    attention_.use(selection);
    feed_forward_.use(selection);
    input_layernorm_.use(selection);
    pre_ff_layernorm_.use(selection);
  }

 private:
  nn::Mamba2Mixer mamba_;
  nn::Attention attention_;
  nn::Mlp feed_forward_;
  nn::Norm input_layernorm_;
  nn::Norm pre_ff_layernorm_;
};

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder();
  nn::LayerSpec layer = spec.layers.front();
  layer.rope = config.rope(layer.head_size, 100000000000.0);
  layer.qkv_bias = config.flag_or("attention_bias", false);
  layer.output_bias = layer.qkv_bias;
  layer.mlp_bias = config.flag_or("mlp_bias", false);
  spec.norm = "model.final_layernorm";
  if (spec.tied) {
    // The embedding holds its own multiplier.
    double embedding = config.view().number_or("embedding_multiplier", 1);
    double head = config.view().number_or("lm_head_multiplier", 1);
    if (embedding == 0) {
      config.view().fail_at("embedding_multiplier", "is 0");
    }
    spec.logits_multiplier = static_cast<float>(head / embedding);
  }
  nn::Mamba2Spec mixer = read_mixer(config);
  DecoderLayers layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    layers.push_back(std::make_unique<ParallelLayer>(layer, mixer));
  }
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

// Numbers of "mlp_multipliers" or "ssm_multipliers".
std::vector<double>
read_list(const JsonView& config, std::string_view key, size_t count) {
  auto values = config.numbers_or_empty(key);
  if (values.empty()) {
    values.assign(count, 1.0);
  }
  if (values.size() != count) {
    config.fail_at(
        key,
        fmt::format("has {} numbers, not {}", values.size(), count));
  }
  return values;
}

// Of the rows of in_proj: gate, x, B, C, dt.
mx::array row_multipliers(const DecoderConfig& config) {
  auto factors = read_list(config.view(), "ssm_multipliers", 5);
  auto mixer = read_mixer(config);
  int groups = mixer.groups * mixer.state_size;
  int sizes[] =
      {mixer.inner_size(), mixer.inner_size(), groups, groups, mixer.heads};
  std::vector<mx::array> parts;
  for (int i = 0; i < 5; ++i) {
    parts.push_back(mx::full({sizes[i]}, static_cast<float>(factors[i])));
  }
  return mx::concatenate(parts);
}

void rewrite(hub::TensorRewrite& tensors) {
  if (!turn_convolutions(tensors, "conv1d.weight")) {
    return;
  }
  DecoderConfig config(tensors.source());
  const JsonView& view = config.view();
  auto one = [&](std::string_view key) { return view.number_or(key, 1); };
  auto mlp = read_list(view, "mlp_multipliers", 2);
  const std::pair<const char*, double> factors[] = {
      {"embed_tokens.weight", one("embedding_multiplier")},
      {"lm_head.weight", one("lm_head_multiplier")},
      {"q_proj.weight", one("attention_in_multiplier")},
      {"k_proj.weight", one("attention_in_multiplier")},
      {".o_proj.weight", one("attention_out_multiplier")},
      {"out_proj.weight", one("ssm_out_multiplier")},
      {"gate_proj.weight", mlp[0]},
      {"down_proj.weight", mlp[1]},
  };
  double in_factor = one("ssm_in_multiplier");
  mx::array rows = row_multipliers(config);
  for (const auto& name : tensors.names()) {
    for (const auto& [ending, factor] : factors) {
      if (name.ends_with(ending)) {
        tensors.apply(name, [=](const mx::array& weight) {
          auto value = static_cast<float>(factor);
          return mx::multiply(weight, mx::array(value, weight.dtype()));
        });
      }
    }
    if (name.ends_with("in_proj.weight")) {
      tensors.apply(name, [=](const mx::array& weight) {
        mx::array column = mx::expand_dims(mx::astype(rows, weight.dtype()), 1);
        auto value = static_cast<float>(in_factor);
        return mx::multiply(
            weight,
            mx::multiply(mx::array(value, weight.dtype()), column));
      });
    }
  }
}

constexpr std::string_view kCheckpoints[] = {
    "tiiuae/Falcon-H1-0.5B-Instruct",
    "tiiuae/Falcon-H1-7B-Instruct",
    "tiiuae/Falcon-H1-34B-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "falcon_h1", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128,
  "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_d_conv": 4,
  "mamba_conv_bias": true, "mamba_rms_norm": true,
  "mamba_norm_before_gate": false, "tie_word_embeddings": false
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "falcon_h1",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Falcon-H1",
    .features = "attention beside a state-space mixer in every layer",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::falcon_h1
