#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/adapters/adaptable_modules.h"

namespace mlxx::train {

// How the rank follows from LoraOptions::rank, per module.
enum class RankPolicy {
  constant,
  by_bits,  // ceil(rank * bits / 4), at least 2; dense weights count as 16 bits
  by_kl,    // rank * clip(sensitivity / median, 0.5, 2), rounded, at least 1
};

// Defaults are those of mlx-lm 0.32.2 (mlx_lm/lora.py).
struct LoraOptions {
  bool dora = false;
  int rank = 8;
  // What the change is multiplied with. `alpha` instead: alpha / rank, or
  // alpha / sqrt(rank) with `rank_stabilized` (arXiv 2312.03732), of each
  // module's own rank.
  std::optional<double> scale;  // without alpha: 20
  std::optional<double> alpha;
  bool rank_stabilized = false;
  double dropout = 0;
  // The last so many decoder layers; below 1: all. Absent: 16, or all where a
  // model has fewer.
  std::optional<int> num_layers;
  // Within a decoder layer ("self_attn.q_proj"), or whole names ("lm_head",
  // "model.embed_tokens"). Empty: every linear layer, experts and embedding
  // that decoder layers have.
  std::vector<std::string> keys;
  // LoRA+ (arXiv 2402.12354): how much faster `lora_b` learns.
  double learning_rate_ratio = 1;
  RankPolicy ranks = RankPolicy::constant;
  // Module's name -> KL divergence that its quantization costs.
  std::map<std::string, double> sensitivities;
  uint64_t seed = 0;
};

struct LoraModule {
  adapters::AdaptableModule layer;
  int rank;
  float scale;
};

struct LoraPlan {
  std::vector<LoraModule> modules;  // in the order of mlx-lm's module tree
  // Indices into modules: the order in which mlx-lm makes their numbers.
  std::vector<size_t> made;
  int num_layers;                 // as the options say, or what is taken for it
  std::vector<std::string> keys;  // of all modules, each once
};

// Errors: invalid_request for numbers that are none (rank 0 or above a layer's
// inputs, a dropout of 1, both scale and alpha), for a key or sensitivity that
// fits no layer, for more layers than there are; unsupported for DoRA of
// experts.
LoraPlan plan_lora(const models::Model& model, const LoraOptions& options);

// {"module": number, ...}
std::map<std::string, double> read_sensitivities(const std::string& path);

}  // namespace mlxx::train
