// Llama and Mistral: pre-norm blocks of grouped-query attention with rotary
// positions and a SwiGLU network. Reference: mlx-lm 0.32.2, models/llama.py.
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::llama {

extern const ModelInfo kInfo;

namespace {

DecoderSpec read_spec(const DecoderConfig& config) {
  config.require_activation({"silu", "swish"});
  DecoderSpec spec = config.decoder();
  // Without layer_types the window has no effect, as in mlx-lm.
  config.read_windows(spec);
  bool attention_bias = config.flag_or("attention_bias", false);
  auto rope = config.rope(spec.layers.front().head_size);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.qkv_bias = attention_bias;
    layer.output_bias = attention_bias;
    layer.mlp_bias = config.flag_or("mlp_bias", false);
    layer.rope = rope;
  });
  return spec;
}

constexpr std::string_view kAliases[] = {"mistral"};

constexpr std::string_view kCheckpoints[] = {
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.2-1B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "HuggingFaceTB/SmolLM2-135M-Instruct",
};

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
    .make = make_decoder<read_spec>,
    .tiny_config = kTinyConfig,
    .notes = "Llama 1 to 3, Mistral 7B, SmolLM and other models of that form",
    .features = "grouped-query attention, scaled rope, sliding windows",
    .checkpoints = kCheckpoints,
};

}  // namespace mlxx::models::llama
