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
// Rows of prompts go through the layers together, unless the same bits are
// asked for whatever is computed beside a row. Not differentiable.
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

  // Model::append_prompts().
  bool append_prompts(
      const mx::array& tokens,
      std::span<const int> lengths,
      cache::CacheList& cache,
      const LayerByLayer& layer_by_layer) const;

 private:
  CudaDecoder(
      std::shared_ptr<kernels::CudaDecoder> decoder,
      const kernels::KvShape& shape,
      std::vector<int> windows,
      bool deterministic)
      : decoder_(std::move(decoder)),
        shape_(shape),
        windows_(std::move(windows)),
        deterministic_(deterministic) {}

  using Sequences = std::span<kernels::SequenceKv* const>;
  // Logits, and what the next operation on the sequences waits for.
  using Result = std::pair<mx::array, mx::array>;

  // One token of each sequence, all in one pass through the layers: where
  // adapters change them.
  Result joined(
      const mx::array& tokens,
      Sequences sequences,
      std::vector<mx::array> previous,
      const LayerByLayer& layer_by_layer) const;
  // Rows that hold equally many tokens, in one pass; of row b the first
  // lengths[b] tokens count.
  Result together(
      const mx::array& tokens,
      std::span<const int> lengths,
      Sequences sequences,
      const std::vector<mx::array>& previous,
      const LayerByLayer& layer_by_layer) const;
  // Any rows, as few passes as can be.
  Result prompts(
      const mx::array& tokens,
      Sequences sequences,
      std::vector<mx::array> previous,
      const LayerByLayer& layer_by_layer) const;
  // The same for rows whose adapters differ: they can't be parted.
  Result prompts_apart(
      const mx::array& tokens,
      Sequences sequences,
      std::vector<mx::array> previous,
      const LayerByLayer& layer_by_layer) const;
  // What layers see of sequences of one length, and back into their blocks.
  cache::CacheList open(
      Sequences sequences,
      const std::vector<mx::array>& previous) const;
  mx::array close(
      Sequences sequences,
      const cache::CacheList& layers,
      std::span<const int> lengths,
      const std::vector<mx::array>& previous) const;

  std::shared_ptr<kernels::CudaDecoder> decoder_;
  kernels::KvShape shape_;
  std::vector<int> windows_;  // of each layer; 0: none
  bool deterministic_;
};

}  // namespace mlxx::models
