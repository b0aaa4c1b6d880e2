#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlxx/cache/cache.h"
#include "mlxx/kernels/decoder_layer/decoder_layer.h"
#include "mlxx/nn/block.h"

namespace mlxx::models {

// Those blocks of a decoder as one operation each that a kernel computes, where
// the whole decoder does not run as one: on the CPU, with packed weights. Of a
// block with a network of another kind than an MLP, its attention. Not
// differentiable.
class FusedLayers {
 public:
  // Once the weights are in. `blocks`: one per layer, null for layers of
  // another kind; they must outlive the result. Nothing, and the reason in
  // `why`, if no block is covered.
  static std::optional<FusedLayers> make(
      std::span<nn::TransformerBlock* const> blocks,
      const kernels::Selection& selection,
      std::string& why);

  bool covers(int layer) const {
    return entries_.contains(layer);
  }
  // State of one covered layer.
  std::unique_ptr<cache::LayerCache> make_cache() const;
  static bool made(const cache::LayerCache& cache);

  // h [B, L, E] -> [B, L, E]. Only of covered layers, with a cache of
  // make_cache().
  mx::array operator()(int layer, const mx::array& h, cache::LayerCache& cache)
      const;

 private:
  struct Entry {
    nn::TransformerBlock* block;
    int index;  // among the kernel's layers
  };

  FusedLayers(std::map<int, Entry> entries, kernels::DecoderLayers layers)
      : entries_(std::move(entries)), layers_(std::move(layers)) {}

  std::map<int, Entry> entries_;
  kernels::DecoderLayers layers_;
};

}  // namespace mlxx::models
