// DeepSeek-V3 and Kimi K2: latent attention, then experts in groups with
// shared ones. Reference: mlx-lm 0.32.2, models/deepseek_v3.py.
#include <cmath>

#include "mlxx/base/error.h"
#include "mlxx/models/expert_layers.h"
#include "mlxx/models/registry.h"
#include "mlxx/nn/latent_block.h"

namespace mlxx::models::deepseek_v3 {

extern const ModelInfo kInfo;

namespace {

constexpr int kMostHeads = 4096;
constexpr int kLargestHead = 8192;

int read_head_size(const JsonView& config, std::string_view key) {
  return static_cast<int>(config.integer(key, 1, kLargestHead));
}

// 1 / sqrt of the query size, times the square of what a YaRN that stretches
// positions makes of attention.
float read_scale(const DecoderConfig& config, int query_size) {
  double scale = std::pow(query_size, -0.5);
  if (config.view().has("rope_scaling")) {
    JsonView scaling = config.view().object("rope_scaling");
    double all_dims = scaling.number_or("mscale_all_dim", 0);
    double factor = scaling.number_or("factor", 1);
    if (all_dims != 0 && factor > 1) {
      double stretch = 0.1 * all_dims * std::log(factor) + 1;
      scale = scale * stretch * stretch;
    }
  }
  return static_cast<float>(scale);
}

nn::LatentAttentionSpec read_attention(
    const DecoderConfig& config,
    const DecoderSpec& spec) {
  nn::LatentAttentionSpec attention;
  attention.hidden_size = spec.hidden_size;
  attention.heads = spec.layers.front().heads;
  // null: queries are not compressed.
  attention.query_rank = config.size_or("q_lora_rank", 0);
  attention.latent_size = config.size("kv_lora_rank");
  attention.plain_size = read_head_size(config.view(), "qk_nope_head_dim");
  attention.rope_size = read_head_size(config.view(), "qk_rope_head_dim");
  attention.value_size = read_head_size(config.view(), "v_head_dim");
  if (attention.rope_size % 2 != 0) {
    config.view().fail_at(
        "qk_rope_head_dim",
        fmt::format(
            "is {}, which makes no pairs to rotate",
            attention.rope_size));
  }
  attention.scale =
      read_scale(config, attention.plain_size + attention.rope_size);
  attention.bias = config.flag_or("attention_bias", false);
  attention.rope = config.rope(attention.rope_size, 10000, true);
  return attention;
}

std::unique_ptr<Model> make(const hub::Checkpoint& checkpoint) {
  DecoderConfig config(checkpoint);
  config.require_activation({"silu"});
  config.require_activation({"sigmoid"}, "scoring_func");
  DecoderSpec spec = config.decoder();
  spec.tied = false;
  nn::LatentAttentionSpec attention = read_attention(config, spec);
  const JsonView& view = config.view();
  bool has_experts = view.has("n_routed_experts");
  nn::SparseMlpSpec mixture =
      has_experts ? read_grouped_experts(config) : nn::SparseMlpSpec{};
  auto dense = view.integer_or("first_k_dense_replace", 0, 0, INT32_MAX);
  int every = config.size_or("moe_layer_freq", 1);
  DecoderLayers layers;
  for (int i = 0; i < static_cast<int>(spec.layers.size()); ++i) {
    bool is_sparse = has_experts && i >= dense && i % every == 0;
    layers.push_back(std::make_unique<nn::LatentBlock>(
        attention,
        spec.layers[i],
        is_sparse ? std::make_unique<nn::SparseMlp>(mixture) : nullptr));
  }
  return std::make_unique<DecoderModel>(std::move(spec), std::move(layers));
}

struct HeadSizes {
  int64_t heads;
  int64_t plain;
  int64_t value;
};

// A dense matrix [heads * (plain + value), latent] becomes one for queries,
// turned, and one for values.
void split_dense(
    hub::TensorRewrite& tensors,
    const std::string& start,
    const HeadSizes& sizes) {
  std::string both = start + "kv_b_proj.weight";
  int64_t latent = tensors.info(both).shape.back();
  tensors.reshape(both, {sizes.heads, sizes.plain + sizes.value, latent});
  std::string embed = start + "embed_q.weight";
  tensors.split(
      both,
      1,
      {sizes.plain, sizes.value},
      {embed, start + "unembed_out.weight"});
  tensors.transpose(embed, {0, 2, 1});
}

// Of a quantized matrix both halves are quantized again, since one is turned.
hub::Derivation requantized_half(
    const hub::TensorInfo& info,
    const HeadSizes& sizes,
    bool is_plain) {
  int64_t latent = info.shape.back();
  hub::Quantization q = *info.quantization;
  hub::Derivation half;
  half.shape = is_plain ? std::vector{sizes.heads, latent, sizes.plain}
                        : std::vector{sizes.heads, sizes.value, latent};
  half.quantization = q;
  half.stored = info.stored;
  half.compute = [=](std::span<const hub::Weight> inputs,
                     const hub::LoadDtype&) {
    const hub::Weight& both = inputs[0];
    mx::array dense = mx::dequantize(
        both.weight,
        *both.scales,
        both.biases,
        q.group_size,
        q.bits,
        q.mode);
    auto parts = mx::split(
        mx::reshape(
            dense,
            {static_cast<int>(sizes.heads), -1, static_cast<int>(latent)}),
        mx::Shape{static_cast<int>(sizes.plain)},
        1);
    mx::array chosen =
        is_plain ? mx::contiguous(mx::swapaxes(parts[0], -1, -2)) : parts[1];
    auto packed = mx::quantize(chosen, q.group_size, q.bits, q.mode);
    return hub::Weight{
        packed[0],
        packed[1],
        packed.size() > 2 ? std::optional(packed[2]) : std::nullopt};
  };
  return half;
}

void split_quantized(
    hub::TensorRewrite& tensors,
    const std::string& start,
    const HeadSizes& sizes) {
  std::string both = start + "kv_b_proj.weight";
  const hub::TensorInfo& info = tensors.info(both);
  if (sizes.plain % info.quantization->group_size != 0) {
    fail(
        ErrorKind::unsupported,
        tensors.source().path().string(),
        "'{}' is quantized in groups of {}, which heads of {} cannot be",
        both,
        info.quantization->group_size,
        sizes.plain);
  }
  tensors.derive(
      {both},
      {{start + "embed_q.weight", requantized_half(info, sizes, true)},
       {start + "unembed_out.weight", requantized_half(info, sizes, false)}});
}

void rewrite(hub::TensorRewrite& tensors) {
  JsonView config(tensors.config(), "config.json");
  drop_further_layers(tensors);
  if (config.has("n_routed_experts")) {
    stack_experts(
        tensors,
        "model.layers.{}.mlp.experts",
        "model.layers.{}.mlp.switch_mlp",
        "n_routed_experts",
        ExpertNames::spoken);
  }
  HeadSizes sizes{
      config.integer("num_attention_heads", 1, kMostHeads),
      read_head_size(config, "qk_nope_head_dim"),
      read_head_size(config, "v_head_dim")};
  constexpr auto kBoth = "model.layers.{}.self_attn.kv_b_proj.weight";
  for (int64_t layer : tensors.numbers(kBoth)) {
    std::string start = fmt::format("model.layers.{}.self_attn.", layer);
    const auto& info = tensors.info(start + "kv_b_proj.weight");
    if (info.shape.size() != 2 ||
        info.shape[0] != sizes.heads * (sizes.plain + sizes.value)) {
      fail(
          ErrorKind::bad_file,
          tensors.source().path().string(),
          "tensor '{}kv_b_proj.weight' has shape [{}], which is not that of {} "
          "heads of {} + {}",
          start,
          fmt::join(info.shape, ", "),
          sizes.heads,
          sizes.plain,
          sizes.value);
    }
    if (info.quantization) {
      split_quantized(tensors, start, sizes);
    } else {
      split_dense(tensors, start, sizes);
    }
  }
}

constexpr std::string_view kAliases[] = {"kimi_k2", "joyai_llm_flash"};

constexpr std::string_view kCheckpoints[] = {
    "deepseek-ai/DeepSeek-V3-0324",
    "deepseek-ai/DeepSeek-R1",
    "moonshotai/Kimi-K2-Instruct",
};

constexpr std::string_view kTinyConfig = R"({
  "model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
  "max_position_embeddings": 512, "rope_theta": 10000.0,
  "rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 32,
    "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 64},
  "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 32,
  "qk_rope_head_dim": 16, "v_head_dim": 32, "attention_bias": false,
  "tie_word_embeddings": false, "moe_intermediate_size": 32,
  "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
  "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
  "norm_topk_prob": true, "first_k_dense_replace": 1, "moe_layer_freq": 1,
  "topk_method": "noaux_tc", "scoring_func": "sigmoid"
})";

}  // namespace

constinit const ModelInfo kInfo = {
    .model_type = "deepseek_v3",
    .aliases = kAliases,
    .make = make,
    .tiny_config = kTinyConfig,
    .notes = "DeepSeek-V3, R1 and Kimi K2",
    .features = "latent attention, experts in groups with shared ones",
    .checkpoints = kCheckpoints,
    .rewrite = rewrite,
};

}  // namespace mlxx::models::deepseek_v3
