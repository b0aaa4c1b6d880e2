// The GGUF architecture "llama": Llama 1 to 3, Mistral 7B, SmolLM and others of
// that form. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <nlohmann/json.hpp>

#include "mlxx/hub/gguf_decoder_keys.h"

namespace mlxx::hub {

extern const GgufArchitecture kGgufLlama;

namespace {

constexpr GgufModuleName kModules[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
    {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
    {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
};

constexpr std::string_view kConsumed[] = {"rope_freqs.weight"};

Json make_config(const GgufFile& file) {
  GgufDecoderKeys keys = read_gguf_decoder(file, "llama");
  keys.require_full_rotation();
  Json config = keys.config("llama", "LlamaForCausalLM");
  config["attention_bias"] =
      find_gguf_tensor(file, "blk.0.attn_q.bias") != nullptr;
  config["mlp_bias"] = find_gguf_tensor(file, "blk.0.ffn_gate.bias") != nullptr;
  Json scaling =
      make_rope_scaling(file, "llama", keys.head_size, keys.base, keys.context);
  if (!scaling.is_null()) {
    config["rope_scaling"] = scaling;
  }
  return config;
}

RowOrder row_order(const Json& config, std::string_view name) {
  bool is_permuted = name.find(".self_attn.q_proj.") != std::string::npos ||
      name.find(".self_attn.k_proj.") != std::string::npos;
  return {is_permuted ? config.at("head_dim").get<int64_t>() : 0};
}

}  // namespace

constinit const GgufArchitecture kGgufLlama = {
    .name = "llama",
    .modules = kModules,
    .consumed = kConsumed,
    .make_config = make_config,
    .row_order = row_order,
};

}  // namespace mlxx::hub
