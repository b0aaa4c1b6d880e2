#include "mlxx/models/fused_layers.h"

#include "mlxx/cache/decoder_cache.h"
#include "mlxx/models/module_weights.h"

namespace mlxx::models {
namespace {

nn::TransformerBlock* whole_block(nn::DecoderLayer& layer) {
  auto* block = dynamic_cast<nn::TransformerBlock*>(&layer);
  return block && block->has_mlp() ? block : nullptr;
}

// The first layer decides of what shape heads are.
void set_shape(const nn::LayerSpec& spec, kernels::DecoderWeights& weights) {
  weights.hidden_size = spec.hidden_size;
  weights.heads = spec.heads;
  weights.kv_heads = spec.kv_heads;
  weights.head_size = spec.head_size;
}

// Appends the layer if it fits; empty, or why not.
std::string add_if_covered(
    nn::DecoderLayer& layer,
    kernels::DecoderWeights& weights) {
  auto* block = whole_block(layer);
  if (weights.layers.empty()) {
    if (block) {
      set_shape(block->spec(), weights);
    } else if (auto spec = layer.attention_half()) {
      set_shape(*spec, weights);
    }
  }
  size_t layers = weights.layers.size();
  size_t rotations = weights.rotations.size();
  std::string problem =
      block ? add_layer(*block, weights) : add_attention_half(layer, weights);
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
    std::span<const std::unique_ptr<nn::DecoderLayer>> layers,
    const kernels::Selection& selection,
    std::string& why) {
  if (!selection.has_cpu_kernels()) {
    why = "this backend has no such kernel, or plain operations are asked for";
    return std::nullopt;
  }
  auto weights = std::make_shared<kernels::DecoderWeights>();
  std::map<int, Entry> entries;
  for (size_t i = 0; i < layers.size(); ++i) {
    int index = static_cast<int>(weights->layers.size());
    std::string problem = add_if_covered(*layers[i], *weights);
    if (problem.empty()) {
      bool whole = whole_block(*layers[i]);
      entries.emplace(
          static_cast<int>(i),
          Entry{whole ? nullptr : layers[i].get(), index});
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
  auto [rest, index] = entries_.at(layer);
  auto& state = static_cast<cache::DecoderCache&>(cache);
  auto [hidden, done] =
      layers_(index, h, state.sequences(h.shape(0)), state.newest());
  state.set_newest(done);
  hidden = mx::astype(hidden, h.dtype());
  return rest ? rest->add_network(hidden) : hidden;
}

}  // namespace mlxx::models
