#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "mlxx/cache/cache.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/kernels/decode_step/decoder_program.h"
#include "mlxx/models/fused_decoder.h"

namespace mlxx::models {

// A decoder whose steps of one token per sequence run as one operation of
// libmlxx_cuda. Prompts, and steps that adapters of an AdapterScope change, run
// layer by layer, and what they leave is put into the blocks of the sequences.
// Not differentiable.
class CudaDecoder {
 public:
  // Once the weights are in; packs them. Nothing, and the reason in `why`, if
  // there is no plug-in or it does not cover these parts.
  static std::optional<CudaDecoder> make(
      const FusedDecoder::Parts& parts,
      const kernels::Selection& selection,
      std::string& why);

  // Its state, one entry for all layers.
  cache::CacheList make_cache() const;
  static bool made(const cache::CacheList& cache);

  // tokens [B, L] and one cache per layer -> logits of the last token [B, V],
  // or of all [B, L, V].
  using LayerByLayer = std::function<
      mx::array(const mx::array& tokens, cache::CacheList& layers)>;
  // tokens [B, L] -> float32 logits [B, V] of the last one, or [B, L, V].
  mx::array operator()(
      const mx::array& tokens,
      cache::CacheList& cache,
      kernels::LogitRows rows,
      const LayerByLayer& layer_by_layer) const;

 private:
  CudaDecoder(
      std::shared_ptr<kernels::CudaDecoder> decoder,
      const kernels::KvShape& shape,
      std::vector<int> windows)
      : decoder_(std::move(decoder)),
        shape_(shape),
        windows_(std::move(windows)) {}

  using Sequences = std::vector<kernels::SequenceKv*>;
  // Logits, and what the next operation on the sequences waits for.
  using Result = std::pair<mx::array, mx::array>;

  // One token of each sequence, all in one pass through the layers: where
  // adapters change them.
  Result joined(
      const mx::array& tokens,
      const Sequences& sequences,
      std::vector<mx::array> previous,
      const LayerByLayer& layer_by_layer) const;
  Result one_by_one(
      const mx::array& tokens,
      const Sequences& sequences,
      std::vector<mx::array> previous,
      const LayerByLayer& layer_by_layer) const;
  // What layers see of a sequence, and back into its blocks.
  cache::CacheList open(
      const kernels::SequenceKv& sequence,
      const std::vector<mx::array>& previous) const;
  mx::array close(
      kernels::SequenceKv& sequence,
      const cache::CacheList& layers,
      int length,
      const std::vector<mx::array>& previous) const;

  std::shared_ptr<kernels::CudaDecoder> decoder_;
  kernels::KvShape shape_;
  std::vector<int> windows_;  // of each layer; 0: none
};

}  // namespace mlxx::models
