// The GGUF architecture "phi3": Phi-3, Phi-3.5 and Phi-4, with queries, keys
// and values in one matrix and both halves of the MLP in another.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/gguf_decoder_keys.h"

namespace mlxx::hub {

extern const GgufArchitecture kGgufPhi3;

namespace {

constexpr GgufModuleName kModules[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {"blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
};

constexpr std::string_view kLong = "rope_factors_long.weight";
constexpr std::string_view kShort = "rope_factors_short.weight";
constexpr std::string_view kConsumed[] = {kLong, kShort};

// The scale of the rotated input follows from the lengths; a file that asks
// for another one asks for what the model does not compute.
void check_attention_factor(const GgufDecoderKeys& keys, int64_t trained) {
  std::string key = keys.key("rope.scaling.attn_factor");
  auto given = keys.metadata().number_if(key);
  if (!given) {
    return;
  }
  double longer =
      static_cast<double>(keys.context) / static_cast<double>(trained);
  double expected = longer <= 1
      ? 1
      : std::sqrt(
            1 + std::log(longer) / std::log(static_cast<double>(trained)));
  if (std::abs(*given - expected) > 1e-4 * expected) {
    fail(
        ErrorKind::unsupported,
        keys.metadata().place(),
        "'{}' is {}, for these lengths it must be {}",
        key,
        *given,
        expected);
  }
}

Json make_config(const GgufFile& file) {
  GgufDecoderKeys keys = read_gguf_decoder(file, "phi3");
  Json config = keys.config("phi3", "Phi3ForCausalLM");
  if (keys.rotated < 2 || keys.rotated > keys.head_size ||
      keys.rotated % 2 != 0) {
    keys.metadata().fail_at(
        keys.key("rope.dimension_count"),
        fmt::format(
            "is {}, the head size is {}",
            keys.rotated,
            keys.head_size));
  }
  config["partial_rotary_factor"] =
      static_cast<double>(keys.rotated) / static_cast<double>(keys.head_size);
  int64_t trained = keys.metadata()
                        .integer_if(
                            keys.key("rope.scaling.original_context_length"),
                            2,
                            INT32_MAX)
                        .value_or(keys.context);
  config["original_max_position_embeddings"] = trained;
  auto long_factors = read_gguf_factors(file, kLong, keys.rotated / 2);
  auto short_factors = read_gguf_factors(file, kShort, keys.rotated / 2);
  if (long_factors.empty() != short_factors.empty()) {
    fail(
        ErrorKind::bad_file,
        keys.metadata().place(),
        "'{}' and '{}' belong together",
        kLong,
        kShort);
  }
  if (!long_factors.empty()) {
    check_attention_factor(keys, trained);
    config["rope_scaling"] = {
        {"type", "longrope"},
        {"long_factor", long_factors},
        {"short_factor", short_factors}};
  }
  return config;
}

}  // namespace

constinit const GgufArchitecture kGgufPhi3 = {
    .name = "phi3",
    .modules = kModules,
    .consumed = kConsumed,
    .make_config = make_config,
    .row_order = rows_as_they_are,
};

}  // namespace mlxx::hub
