// The GGUF architecture "llama": Llama 1 to 3, Mistral 7B, SmolLM and others of
// that form. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/gguf_architecture.h"

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

// A count that some architectures give per layer; llama has one for all.
int64_t uniform_count(
    const GgufMetadata& metadata,
    const std::string& key,
    int64_t max) {
  const GgufValue* value = metadata.find(key);
  if (!value || value->type != GgufValueType::array) {
    return metadata.integer(key, 1, max);
  }
  auto counts = metadata.integers(key);
  if (counts.empty() || counts[0] < 1 || counts[0] > max) {
    metadata.fail_at(key, fmt::format("must hold counts from 1 to {}", max));
  }
  if (std::ranges::any_of(counts, [&](auto n) { return n != counts[0]; })) {
    fail(
        ErrorKind::unsupported,
        metadata.place(),
        "'{}' differs between layers",
        key);
  }
  return counts[0];
}

// Keys that change the computation and that config.json of llama cannot say.
void refuse_other_forms(const GgufMetadata& metadata) {
  if (metadata.integer_if("llama.expert_count", 0, INT32_MAX).value_or(0) > 0) {
    fail(
        ErrorKind::unsupported,
        metadata.place(),
        "a mixture of experts ('llama.expert_count') in the architecture "
        "'llama'");
  }
  for (const char* key :
       {"llama.attention.scale",
        "llama.logit_scale",
        "llama.embedding_scale",
        "llama.residual_scale",
        "llama.attention.clamp_kqv"}) {
    if (metadata.has(key) && metadata.number(key) != 0 &&
        metadata.number(key) != 1) {
      fail(
          ErrorKind::unsupported,
          metadata.place(),
          "'{}' is {}, which llama does not have",
          key,
          metadata.number(key));
    }
  }
}

Json make_config(const GgufFile& file) {
  constexpr int64_t kMaxSize = 1 << 20;
  const GgufMetadata& metadata = file.metadata();
  refuse_other_forms(metadata);
  int64_t hidden = metadata.integer("llama.embedding_length", 1, kMaxSize);
  int64_t heads = uniform_count(metadata, "llama.attention.head_count", 4096);
  int64_t kv_heads = heads;
  if (metadata.has("llama.attention.head_count_kv")) {
    kv_heads = uniform_count(metadata, "llama.attention.head_count_kv", heads);
  }
  int64_t head_size = metadata.integer_if("llama.attention.key_length", 1, 8192)
                          .value_or(hidden / heads);
  if (head_size < 2 || head_size % 2 != 0 || heads % kv_heads != 0) {
    fail(
        ErrorKind::bad_file,
        metadata.place(),
        "{} heads of {} with {} key-value heads cannot be",
        heads,
        head_size,
        kv_heads);
  }
  for (const char* key :
       {"llama.rope.dimension_count", "llama.attention.value_length"}) {
    int64_t size = metadata.integer_if(key, 0, 8192).value_or(head_size);
    if (size != head_size) {
      fail(
          ErrorKind::unsupported,
          metadata.place(),
          "'{}' is {}, the head size is {}",
          key,
          size,
          head_size);
    }
  }
  const GgufTensor* embedding = find_gguf_tensor(file, "token_embd.weight");
  if (!embedding || embedding->shape.size() != 2) {
    fail(
        ErrorKind::bad_file,
        metadata.place(),
        "the matrix 'token_embd.weight' is missing");
  }
  double base = metadata.number_if("llama.rope.freq_base").value_or(10000.0);
  int64_t context = metadata.integer("llama.context_length", 1, INT32_MAX);

  Json config = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"hidden_act", "silu"},
      {"vocab_size", embedding->shape[0]},
      {"hidden_size", hidden},
      {"num_hidden_layers", metadata.integer("llama.block_count", 1, 4096)},
      {"intermediate_size",
       uniform_count(metadata, "llama.feed_forward_length", kMaxSize)},
      {"num_attention_heads", heads},
      {"num_key_value_heads", kv_heads},
      {"head_dim", head_size},
      {"rms_norm_eps",
       metadata.number("llama.attention.layer_norm_rms_epsilon")},
      {"max_position_embeddings", context},
      {"rope_theta", base},
      {"attention_bias",
       find_gguf_tensor(file, "blk.0.attn_q.bias") != nullptr},
      {"mlp_bias", find_gguf_tensor(file, "blk.0.ffn_gate.bias") != nullptr},
      {"tie_word_embeddings",
       find_gguf_tensor(file, "output.weight") == nullptr}};
  Json scaling = make_rope_scaling(file, "llama", head_size, base, context);
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
