// The GGUF architectures "qwen2" (Qwen2 and Qwen2.5) and "qwen3".
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <nlohmann/json.hpp>

#include "mlxx/hub/gguf_decoder_keys.h"

namespace mlxx::hub {

extern const GgufArchitecture kGgufQwen2;
extern const GgufArchitecture kGgufQwen3;

namespace {

constexpr GgufModuleName kModules[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
    {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
    {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
    {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
};

Json make_config(
    const GgufFile& file,
    const std::string& name,
    std::string_view class_name) {
  GgufDecoderKeys keys = read_gguf_decoder(file, name);
  keys.require_full_rotation();
  Json config = keys.config(name, class_name);
  Json scaling =
      make_rope_scaling(file, name, keys.head_size, keys.base, keys.context);
  if (!scaling.is_null()) {
    config["rope_scaling"] = scaling;
  }
  return config;
}

Json make_qwen2_config(const GgufFile& file) {
  return make_config(file, "qwen2", "Qwen2ForCausalLM");
}

Json make_qwen3_config(const GgufFile& file) {
  return make_config(file, "qwen3", "Qwen3ForCausalLM");
}

}  // namespace

constinit const GgufArchitecture kGgufQwen2 = {
    .name = "qwen2",
    .modules = kModules,
    .consumed = {},
    .make_config = make_qwen2_config,
    .row_order = rows_as_they_are,
};

constinit const GgufArchitecture kGgufQwen3 = {
    .name = "qwen3",
    .modules = kModules,
    .consumed = {},
    .make_config = make_qwen3_config,
    .row_order = rows_as_they_are,
};

}  // namespace mlxx::hub
