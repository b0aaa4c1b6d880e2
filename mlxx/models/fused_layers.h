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

// Those layers of a decoder as one operation each that a kernel computes, where
// the whole decoder does not run as one: on the CPU, with packed weights. Of a
// layer with a network of another kind than an MLP, its attention. Not
// differentiable.
class FusedLayers {
 public:
  // Once the weights are in. The layers must outlive the result. Nothing, and
  // the reason in `why`, if none is covered.
  static std::optional<FusedLayers> make(
      std::span<const std::unique_ptr<nn::DecoderLayer>> layers,
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
    const nn::DecoderLayer*
        rest;   // whose network is computed after; null: none
    int index;  // among the kernel's layers
  };

  FusedLayers(std::map<int, Entry> entries, kernels::DecoderLayers layers)
      : entries_(std::move(entries)), layers_(std::move(layers)) {}

  std::map<int, Entry> entries_;
  kernels::DecoderLayers layers_;
};

}  // namespace mlxx::models
