// The GGUF architectures "gemma2" and "gemma3" (the text part). Where a key is
// missing, the number is the one that llama.cpp uses then.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <nlohmann/json.hpp>

#include "mlxx/hub/gguf_decoder_keys.h"

namespace mlxx::hub {

extern const GgufArchitecture kGgufGemma2;
extern const GgufArchitecture kGgufGemma3;

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
    {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
    {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};

// The largest model of each series divides by the width per head, the others
// by the size of a head; no key says so.
int64_t attention_scalar(const GgufDecoderKeys& keys, int64_t largest_layers) {
  return keys.layers == largest_layers ? keys.hidden / keys.heads
                                       : keys.head_size;
}

Json shared_config(
    const GgufDecoderKeys& keys,
    std::string_view model_type,
    std::string_view class_name) {
  keys.require_full_rotation();
  Json config = keys.config(model_type, class_name);
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_bias"] = false;
  return config;
}

Json make_gemma2_config(const GgufFile& file) {
  GgufDecoderKeys keys = read_gguf_decoder(file, "gemma2");
  const GgufMetadata& metadata = file.metadata();
  Json config = shared_config(keys, "gemma2", "Gemma2ForCausalLM");
  config["query_pre_attn_scalar"] = attention_scalar(keys, 46);
  config["sliding_window"] =
      metadata.integer_if(keys.key("attention.sliding_window"), 1, INT32_MAX)
          .value_or(4096);
  config["attn_logit_softcapping"] =
      metadata.number_if(keys.key("attn_logit_softcapping")).value_or(50);
  config["final_logit_softcapping"] =
      metadata.number_if(keys.key("final_logit_softcapping")).value_or(30);
  return config;
}

Json make_gemma3_config(const GgufFile& file) {
  GgufDecoderKeys keys = read_gguf_decoder(file, "gemma3");
  const GgufMetadata& metadata = file.metadata();
  Json config = shared_config(keys, "gemma3_text", "Gemma3ForCausalLM");
  config["query_pre_attn_scalar"] = attention_scalar(keys, 62);
  config["sliding_window"] =
      metadata.integer(keys.key("attention.sliding_window"), 1, INT32_MAX);
  config["sliding_window_pattern"] =
      metadata
          .integer_if(
              keys.key("attention.sliding_window_pattern"),
              1,
              INT32_MAX)
          .value_or(6);
  config["rope_theta"] =
      metadata.number_if(keys.key("rope.freq_base")).value_or(1000000.0);
  config["rope_local_base_freq"] =
      metadata.number_if(keys.key("rope.freq_base_swa")).value_or(10000.0);
  Json scaling = make_rope_scaling(
      file,
      "gemma3",
      keys.head_size,
      keys.base,
      keys.context);
  if (!scaling.is_null()) {
    config["rope_scaling"] = scaling;
  }
  return config;
}

}  // namespace

constinit const GgufArchitecture kGgufGemma2 = {
    .name = "gemma2",
    .modules = kModules,
    .consumed = {},
    .make_config = make_gemma2_config,
    .row_order = rows_as_they_are,
    .norms_plus_one = true,
};

constinit const GgufArchitecture kGgufGemma3 = {
    .name = "gemma3",
    .modules = kModules,
    .consumed = {},
    .make_config = make_gemma3_config,
    .row_order = rows_as_they_are,
    .norms_plus_one = true,
};

}  // namespace mlxx::hub
