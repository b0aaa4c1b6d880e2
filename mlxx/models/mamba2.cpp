// Mamba2: state-space layers only. Reference: mlx-lm 0.32.2, models/mamba2.py.
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/recurrent_tensors.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/mamba2_mixer.h"

namespace mlxx::models::mamba2 {

extern const ModelInfo kInfo;

namespace {

// Of the norm before each mixer, whatever the config says, as in the
// reference.
constexpr float kBlockEps = 1e-5f;

nn::Mamba2Spec read_mixer(const DecoderConfig& config) {
  nn::Mamba2Spec mixer;
  mixer.hidden_size = config.size("hidden_size");
  mixer.heads = config.size("num_heads");
  mixer.head_size = config.size("head_dim");
  mixer.groups = config.size("n_groups");
  mixer.state_size = config.view().has("ssm_state_size")
      ? config.size("ssm_state_size")
      : config.size("state_size");
  mixer.conv_width =
      static_cast<int>(config.view().integer("conv_kernel", 2, 64));
  mixer.conv_bias = config.view().boolean("use_conv_bias");
  mixer.in_bias = config.view().boolean("use_bias");
  mixer.out_bias = mixer.in_bias;
  std::tie(mixer.dt_lowest, mixer.dt_highest) =
      read_step_limits(config.view(), {0.0f, kNoLimit});
  mixer.norm_eps = config.number("layer_norm_epsilon");
  check_mamba2(config.view(), mixer, "n_groups");
  return mixer;
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder(
      {.intermediate_size = "",
       .heads = "num_heads",
       .norm_eps = "layer_norm_epsilon"});
  spec.embedding = "backbone.embeddings";
  spec.layer_list = "backbone.layers";
  spec.norm = "backbone.norm_f";
  nn::Mamba2Spec mixer = read_mixer(config);
  DecoderLayers layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    nn::MixerLayerParts parts;
    parts.mixer = std::make_unique<nn::Mamba2Mixer>(mixer);
    parts.mixer_name = "mixer";
    parts.mixer_norm = "norm";
    layers.push_back(std::make_unique<nn::MixerLayer>(
        nn::MixerLayerOptions{
            spec.hidden_size,
            {nn::NormSpec::Kind::rms, kBlockEps}},
        std::move(parts)));
  }
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

void rewrite(hub::TensorRewrite& tensors) {
  turn_convolutions(tensors, "conv1d.weight");
}

constexpr std::string_view kCheckpoints[] = {
    "mistralai/Mamba-Codestral-7B-v0.1",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "mamba2", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 128, "num_hidden_layers": 2, "num_heads": 8,
  "head_dim": 16, "state_size": 16, "n_groups": 2, "conv_kernel": 4,
  "layer_norm_epsilon": 1e-05, "use_bias": false, "use_conv_bias": true,
  "tie_word_embeddings": false, "time_step_limit": [0.0, 100.0],
  "time_step_rank": 4
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "mamba2",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "Mamba2 models in Hugging Face form",
    .features = "state-space layers only",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::mamba2
