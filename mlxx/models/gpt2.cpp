// GPT-2: learned positions, LayerNorms, one matrix for queries, keys and
// values. Reference: mlx-lm 0.32.2, models/gpt2.py.
#include <string>
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::gpt2 {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation(
      {"gelu_new", "gelu_pytorch_tanh"},
      "activation_function");
  ConfigKeys keys;
  keys.hidden_size = "n_embd";
  keys.intermediate_size = "";
  keys.layers = "n_layer";
  keys.heads = "n_head";
  keys.norm_eps = "layer_norm_epsilon";
  keys.positions = "n_positions";
  DecoderSpec spec = config.decoder(keys);
  spec.tied = true;
  spec.learned_positions = config.size("n_positions");
  const nn::NormSpec norm = {
      .kind = nn::NormSpec::Kind::layer,
      .eps = spec.final_norm.eps,
      .bias = true};
  spec.final_norm = norm;
  spec.embedding = "model.wte";
  spec.positions = "model.wpe";
  spec.layer_list = "model.h";
  spec.norm = "model.ln_f";
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.intermediate_size = 4 * spec.hidden_size;
    layer.norm = norm;
    layer.qkv_bias = true;
    layer.output_bias = true;
    layer.mlp_bias = true;
    layer.activation = kernels::Activation::gelu_tanh;
    layer.names.attention = "attn";
    layer.names.o = "c_proj";
    layer.names.gate = "";
    layer.names.up = "c_fc";
    layer.names.down = "c_proj";
    layer.names.before_attention = "ln_1";
    layer.names.before_mlp = "ln_2";
  });
  return spec;
}

void rewrite(hub::TensorRewrite& tensors) {
  // Published files have weights as [in, out], masks, and names without model.
  bool published = tensors.has("wte.weight");
  if (published) {
    tensors.drop_each(
        [](std::string_view name) {
          return name.ends_with(".attn.bias") ||
              name.ends_with(".attn.masked_bias");
        },
        "attention mask");
    tensors.rename_each(
        [](std::string_view name) { return "model." + std::string(name); });
    for (const char* matrix :
         {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
      std::string pattern = std::string("model.h.{}.") + matrix + ".weight";
      for (int64_t layer : tensors.numbers(pattern)) {
        tensors.transpose(
            fmt::format("model.h.{}.{}.weight", layer, matrix),
            {1, 0});
      }
    }
  }
  for (const char* part : {"weight", "bias"}) {
    std::string pattern = std::string("model.h.{}.attn.c_attn.") + part;
    for (int64_t layer : tensors.numbers(pattern)) {
      std::string start = fmt::format("model.h.{}.attn.", layer);
      tensors.split_evenly(
          start + "c_attn." + part,
          0,
          {start + "q_proj." + part,
           start + "k_proj." + part,
           start + "v_proj." + part});
    }
  }
}

constexpr std::string_view kCheckpoints[] = {
    "openai-community/gpt2",
    "openai-community/gpt2-xl",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "gpt2", "vocab_size": 96, "n_embd": 64, "n_layer": 2,
  "n_head": 4, "n_ctx": 128, "n_positions": 128, "layer_norm_epsilon": 1e-05
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "gpt2",
    .aliases = {},
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "GPT-2",
    .features = "learned positions, LayerNorm, GELU without a gate",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::gpt2
