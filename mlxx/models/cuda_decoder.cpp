#include "mlxx/models/cuda_decoder.h"

#include "mlxx/cache/decoder_cache.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/models/cuda_weights.h"
#include "mlxx/models/prompt_kv.h"

namespace mlxx::models {

std::optional<CudaDecoder> CudaDecoder::make(
    const FusedDecoder::Parts& parts,
    const kernels::Selection& selection,
    std::string& why) {
  if (backend() != Backend::cuda) {
    why = "MLX's default device is no NVIDIA GPU";
    return std::nullopt;
  }
  if (selection.fallback) {
    why = "plain operations are asked for";
    return std::nullopt;
  }
  const kernels::CudaPlugin* plugin = kernels::cuda_plugin(&why);
  if (!plugin) {
    return std::nullopt;
  }
  why = why_not_on_cuda(parts, *plugin);
  if (!why.empty()) {
    return std::nullopt;
  }
  CudaWeights weights = pack_for_cuda(parts, *plugin);
  const kernels::cuda::Decoder& decoder = weights.decoder;
  kernels::KvShape shape{
      .layers = static_cast<int>(decoder.layers.size()),
      .kv_heads = decoder.kv_heads,
      .head_size = decoder.head_size,
      .type = kernels::KvType::float16,
      .place = kernels::KvPlace::cuda};
  if (plugin->kv_block_bytes(decoder) != shape.block_bytes()) {
    fail(
        ErrorKind::internal,
        "decode step",
        "blocks of {} bytes, not {}",
        plugin->kv_block_bytes(decoder),
        shape.block_bytes());
  }
  std::vector<int> windows;
  for (const auto& layer : decoder.layers) {
    windows.push_back(layer.window);
  }
  auto made = plugin->make_decoder(
      std::move(weights.decoder),
      shape,
      std::move(weights.held),
      selection.deterministic);
  clear_cache();  // MLX's form of the weights
  return CudaDecoder(std::move(made), shape, std::move(windows));
}

cache::CacheList CudaDecoder::make_cache() const {
  cache::CacheList caches;
  caches.push_back(std::make_unique<cache::DecoderCache>(shape_));
  return caches;
}

bool CudaDecoder::made(const cache::CacheList& cache) {
  return FusedDecoder::made(cache);
}

mx::array CudaDecoder::operator()(
    const mx::array& tokens,
    cache::CacheList& cache,
    kernels::LogitRows rows,
    const LayerByLayer& layer_by_layer) const {
  auto& state = static_cast<cache::DecoderCache&>(*cache.front());
  int batch = tokens.shape(0);
  int length = tokens.shape(1);
  auto sequences = state.sequences(batch);
  std::vector<mx::array> previous = state.newest();
  if (length == 1) {
    std::vector<kernels::SequenceKv::Step> steps;
    for (kernels::SequenceKv* sequence : sequences) {
      steps.push_back(sequence->extend(1));
    }
    auto [logits, done] =
        decoder_->step(mx::reshape(tokens, {batch}), steps, previous);
    state.set_newest(done);
    return rows == kernels::LogitRows::all ? mx::expand_dims(logits, 1)
                                           : logits;
  }
  std::vector<mx::array> all;
  for (int b = 0; b < batch; ++b) {
    auto [logits, done] = prompt(
        mx::slice(tokens, {b, 0}, {b + 1, length}),
        *sequences[b],
        previous,
        layer_by_layer);
    all.push_back(logits);
    previous = {done};
  }
  state.set_newest(previous.front());
  return batch == 1 ? all.front() : mx::concatenate(all, 0);
}

std::pair<mx::array, mx::array> CudaDecoder::prompt(
    const mx::array& tokens,
    kernels::SequenceKv& sequence,
    const std::vector<mx::array>& previous,
    const LayerByLayer& layer_by_layer) const {
  int length = tokens.shape(1);
  int from = sequence.length();
  kernels::KvBlocks before = sequence.held_blocks();
  cache::CacheList layers;
  for (int i = 0; i < shape_.layers; ++i) {
    auto read = [&, i](int part) {
      return decoder_->read_kv(before, i, part, from, previous);
    };
    layers.push_back(
        from == 0 ? std::make_unique<PromptKv>(windows_[i])
                  : std::make_unique<PromptKv>(
                        windows_[i],
                        kernels::DenseView{read(0), read(1)}));
  }
  mx::array logits = mx::astype(layer_by_layer(tokens, layers), mx::float32);
  std::vector<mx::array> keys_values;
  for (auto& layer : layers) {
    auto& kv = static_cast<PromptKv&>(*layer);
    keys_values.push_back(kv.new_keys());
    keys_values.push_back(kv.new_values());
  }
  mx::array done =
      decoder_->write_kv(keys_values, sequence.extend(length), previous);
  // Who evaluates the one has the other.
  return {mx::depends({logits}, {done})[0], done};
}

}  // namespace mlxx::models
