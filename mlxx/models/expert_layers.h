#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "mlxx/hub/rewritten_checkpoint.h"
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/nn/sparse_mlp.h"

namespace mlxx::models {

// Gives a layer's network; null: the layer has the Mlp of its spec.
using NetworkOfLayer =
    std::function<std::unique_ptr<nn::FeedForward>(int layer)>;

// A transformer block for each layer of the spec.
DecoderLayers layers_with_networks(
    const DecoderSpec& spec,
    const NetworkOfLayer& network);

// The number of experts, and how many a token goes to: at most all of them.
struct ExpertCounts {
  int experts;
  int per_token;
};
ExpertCounts read_expert_counts(
    const DecoderConfig& config,
    std::string_view experts_key,
    std::string_view per_token_key = "num_experts_per_tok");

// The mixture of DeepSeek-V3 and its kin: sigmoid scores, groups of experts,
// shared experts, under their keys of the config (n_routed_experts,
// moe_intermediate_size, n_group...).
nn::SparseMlpSpec read_grouped_experts(const DecoderConfig& config);

// Names of an expert's three matrices in published files.
enum class ExpertNames {
  spoken,    // gate_proj, up_proj, down_proj
  numbered,  // w1, w3, w2, as Mixtral has them
};

// Drops "model.layers.N..." with N from num_hidden_layers on: layers that
// predict further tokens.
void drop_further_layers(hub::TensorRewrite& tensors);

// "<from>.{e}.<name>.weight" of all experts becomes "<to>.gate_proj.weight"
// and so on. Both are modules with "{}" for the layer; `count_key` of the
// config says how many experts there are.
void stack_experts(
    hub::TensorRewrite& tensors,
    std::string_view from,
    std::string_view to,
    std::string_view count_key,
    ExpertNames names);

}  // namespace mlxx::models
