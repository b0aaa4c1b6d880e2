#include "mlxx/models/fused_layers.h"

#include "mlxx/cache/decoder_cache.h"
#include "mlxx/models/module_weights.h"

namespace mlxx::models {
namespace {

// Appends the block if it fits; empty, or why not.
std::string add_if_covered(
    nn::TransformerBlock& block,
    kernels::DecoderWeights& weights) {
  const nn::LayerSpec& spec = block.spec();
  if (spec.parallel && !block.has_mlp()) {
    return "a network beside the attention is not an MLP";
  }
  if (weights.layers.empty()) {
    weights.hidden_size = spec.hidden_size;
    weights.heads = spec.heads;
    weights.kv_heads = spec.kv_heads;
    weights.head_size = spec.head_size;
  }
  size_t layers = weights.layers.size();
  size_t rotations = weights.rotations.size();
  std::string problem = add_layer(block, weights);
  if (problem.empty()) {
    problem = kernels::why_not_run(weights);
  }
  if (!problem.empty()) {
    weights.layers.resize(layers);
    weights.rotations.resize(rotations);
  }
  return problem;
}

}  // namespace

std::optional<FusedLayers> FusedLayers::make(
    std::span<nn::TransformerBlock* const> blocks,
    const kernels::Selection& selection,
    std::string& why) {
  if (!selection.has_cpu_kernels()) {
    why = "this backend has no such kernel, or plain operations are asked for";
    return std::nullopt;
  }
  auto weights = std::make_shared<kernels::DecoderWeights>();
  std::map<int, Entry> entries;
  why = "no layer is a transformer block";
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i]) {
      continue;
    }
    int index = static_cast<int>(weights->layers.size());
    std::string problem = add_if_covered(*blocks[i], *weights);
    if (problem.empty()) {
      entries.emplace(static_cast<int>(i), Entry{blocks[i], index});
    } else {
      why = std::move(problem);
    }
  }
  if (entries.empty()) {
    return std::nullopt;
  }
  return FusedLayers(
      std::move(entries),
      kernels::DecoderLayers(std::move(weights), selection));
}

std::unique_ptr<cache::LayerCache> FusedLayers::make_cache() const {
  return std::make_unique<cache::DecoderCache>(layers_.kv_shape());
}

bool FusedLayers::made(const cache::LayerCache& cache) {
  return dynamic_cast<const cache::DecoderCache*>(&cache);
}

mx::array FusedLayers::operator()(
    int layer,
    const mx::array& h,
    cache::LayerCache& cache) const {
  auto [block, index] = entries_.at(layer);
  auto& state = static_cast<cache::DecoderCache&>(cache);
  auto [hidden, done] =
      layers_(index, h, state.sequences(h.shape(0)), state.newest());
  state.set_newest(std::move(done));
  hidden = mx::astype(hidden, h.dtype());
  return block->has_mlp() ? hidden : block->add_network(hidden);
}

}  // namespace mlxx::models
