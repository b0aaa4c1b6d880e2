// Llama 4's text model: attention in chunks, every fourth layer without
// rotation and with all tokens, one expert per token beside a shared one.
// Reference: mlx-lm 0.32.2, models/llama4.py.
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/llama4_layer.h"
#include "mlxx/models/registry.h"

namespace mlxx::models::llama4 {

extern const ModelInfo kInfo;

namespace {

// A number or a boolean, in published configs.
bool is_tuned(const JsonView& view) {
  constexpr auto kKey = "attn_temperature_tuning";
  if (!view.has(kKey)) {
    return true;
  }
  return view.json().at(kKey).is_boolean() ? view.boolean(kKey)
                                           : view.number(kKey) != 0;
}

Llama4LayerSpec
read_layer(const DecoderConfig& config, const nn::LayerSpec& block, int index) {
  Llama4LayerSpec layer;
  layer.block = block;
  layer.block.qkv_bias = config.flag_or("attention_bias", false);
  layer.block.output_bias = layer.block.qkv_bias;
  if ((index + 1) % 4 != 0) {
    layer.chunk = config.size("attention_chunk_size");
    if (config.flag_or("use_qk_norm", true)) {
      layer.unit_norm = Llama4LayerSpec::UnitNorm::after_rope;
    }
  } else {
    layer.block.rope = nullptr;
    layer.temperature = is_tuned(config.view());
    layer.floor_scale = config.number_or("floor_scale", 8192);
    if (layer.floor_scale <= 0) {
      config.view().fail_at("floor_scale", "must be above 0");
    }
    layer.temperature_scale = config.number_or("attn_scale", 0.1);
  }
  return layer;
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  JsonView top(checkpoint.config(), "config.json");
  DecoderConfig config(checkpoint, top.object("text_config"));
  config.require_activation({"silu"});
  ConfigKeys keys;
  keys.intermediate_size = "intermediate_size_mlp";
  DecoderSpec spec = config.decoder(keys);
  spec.model_type = top.string("model_type");
  spec.tied = false;
  spec.embedding = "language_model.model.embed_tokens";
  spec.layer_list = "language_model.model.layers";
  spec.norm = "language_model.model.norm";
  spec.head = "language_model.lm_head";
  auto rope = config.rope(
      spec.layers.front().head_size,
      10000,
      /* traditional= */ true);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) { layer.rope = rope; });
  auto counts = read_expert_counts(config, "num_local_experts");
  if (counts.per_token != 1) {
    fail(
        ErrorKind::unsupported,
        config.view().place(),
        "{} experts per token; Llama 4 has one",
        counts.per_token);
  }
  int step = config.size("interleave_moe_layer_step");
  int size = config.size("intermediate_size");
  DecoderLayers layers;
  for (int i = 0; i < static_cast<int>(spec.layers.size()); ++i) {
    bool is_sparse = i % step == step - 1;
    layers.push_back(std::make_unique<Llama4Layer>(
        read_layer(config, spec.layers[i], i),
        is_sparse ? make_llama4_experts(spec.hidden_size, size, counts.experts)
                  : nullptr));
  }
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

// Published files have gate beside up in one tensor [experts, in, 2 * out].
void rewrite(hub::TensorRewrite& tensors) {
  tensors.drop_each(
      [](std::string_view name) {
        return name.find("vision_model") != std::string_view::npos ||
            name.find("multi_modal_projector") != std::string_view::npos;
      },
      "vision tower");
  std::string module = "language_model.model.layers.{}.feed_forward.experts.";
  for (int64_t layer : tensors.numbers(module + "gate_up_proj")) {
    std::string start = fmt::format(
        "language_model.model.layers.{}.feed_forward.experts.",
        layer);
    std::string gate = start + "gate_proj.weight";
    std::string up = start + "up_proj.weight";
    std::string down = start + "down_proj.weight";
    tensors.split_evenly(start + "gate_up_proj", 2, {gate, up});
    tensors.rename(start + "down_proj", down);
    for (const auto& name : {gate, up, down}) {
      tensors.transpose(name, {0, 2, 1});
    }
  }
}

constexpr std::string_view kCheckpoints[] = {
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "llama4", "text_config": {
    "model_type": "llama4_text", "vocab_size": 96, "hidden_size": 64,
    "intermediate_size": 32, "intermediate_size_mlp": 96,
    "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-05,
    "max_position_embeddings": 512, "rope_theta": 500000.0,
    "attention_bias": false, "attention_chunk_size": 16,
    "interleave_moe_layer_step": 2, "num_experts_per_tok": 1,
    "num_local_experts": 4, "use_qk_norm": true,
    "attn_temperature_tuning": true, "floor_scale": 8, "attn_scale": 0.1
  }
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "llama4",
    .aliases = {},
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "The text model of Llama 4",
    .features = "attention in chunks, layers without rope, one expert a token",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::llama4
