#pragma once

#include <span>
#include <string>

#include "mlxx/cache/cache.h"
#include "mlxx/kernels/decode_step/decode_step.h"
#include "mlxx/models/decoder_spec.h"
#include "mlxx/nn/block.h"
#include "mlxx/nn/embedding.h"

namespace mlxx::models {

// Embedding, blocks, last norm and head as one kernel, where there is one that
// computes them: on the CPU, with packed weights. Not differentiable. Adapters
// of an AdapterScope are asked for their changes of it as a whole.
class FusedDecoder {
 public:
  // The modules of a decoder. `positions` may be null; `head` null: the
  // embedding.
  struct Parts {
    const DecoderSpec& spec;
    nn::Embedding& embedding;
    std::span<nn::TransformerBlock* const> blocks;
    nn::Norm& norm;
    nn::Linear* head;
    nn::Embedding* positions = nullptr;
  };
  // Once the weights are in. Nothing, and the reason in `why`, if the kernel
  // does not cover these parts.
  static std::optional<FusedDecoder> make(
      const Parts& parts,
      const kernels::Selection& selection,
      std::string& why);

  // The spec's, rounded as it says.
  static float embedding_multiplier(const DecoderSpec& spec);

  // Its state, one entry for all layers.
  cache::CacheList make_cache() const;
  static bool made(const cache::CacheList& cache);

  // tokens [B, L] -> logits [B, V] of the last one, or [B, L, V].
  mx::array operator()(
      const mx::array& tokens,
      cache::CacheList& cache,
      kernels::LogitRows rows) const;

 private:
  explicit FusedDecoder(kernels::DecodeStep step) : step_(std::move(step)) {}

  kernels::DecodeStep step_;
};

}  // namespace mlxx::models
