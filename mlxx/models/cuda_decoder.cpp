#include "mlxx/models/cuda_decoder.h"

#include "mlxx/cache/decoder_cache.h"
#include "mlxx/cache/joined_rows.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/models/cuda_weights.h"
#include "mlxx/models/prompt_kv.h"
#include "mlxx/nn/row_adapters.h"

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
  const nn::RowAdapters* adapters = nn::active_adapters();
  if (length == 1 && !adapters) {
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
  auto [logits, done] = length == 1
      ? joined(tokens, sequences, std::move(previous), layer_by_layer)
      : one_by_one(tokens, sequences, std::move(previous), layer_by_layer);
  state.set_newest(done);
  // Who evaluates the one has the other.
  return mx::depends({mx::astype(logits, mx::float32)}, {done})[0];
}

CudaDecoder::Result CudaDecoder::joined(
    const mx::array& tokens,
    const Sequences& sequences,
    std::vector<mx::array> previous,
    const LayerByLayer& layer_by_layer) const {
  std::vector<cache::CacheList> opened;
  std::vector<cache::CacheList*> rows;
  for (kernels::SequenceKv* sequence : sequences) {
    opened.push_back(open(*sequence, previous));
  }
  for (auto& row : opened) {
    rows.push_back(&row);
  }
  cache::JoinedRows all(rows);
  mx::array logits = layer_by_layer(tokens, all.caches());
  all.give_rows();
  for (size_t b = 0; b < sequences.size(); ++b) {
    previous = {close(*sequences[b], opened[b], 1, previous)};
  }
  return {logits, previous.front()};
}

CudaDecoder::Result CudaDecoder::one_by_one(
    const mx::array& tokens,
    const Sequences& sequences,
    std::vector<mx::array> previous,
    const LayerByLayer& layer_by_layer) const {
  const nn::RowAdapters* adapters = nn::active_adapters();
  if (sequences.size() > 1 && adapters && adapters->rows_apart()) {
    fail(
        ErrorKind::unsupported,
        "adapters",
        "prompts of {} rows with adapters of their own at once",
        sequences.size());
  }
  int length = tokens.shape(1);
  std::vector<mx::array> logits;
  for (int b = 0; b < static_cast<int>(sequences.size()); ++b) {
    cache::CacheList layers = open(*sequences[b], previous);
    logits.push_back(
        layer_by_layer(mx::slice(tokens, {b, 0}, {b + 1, length}), layers));
    previous = {close(*sequences[b], layers, length, previous)};
  }
  return {
      logits.size() == 1 ? logits.front() : mx::concatenate(logits, 0),
      previous.front()};
}

cache::CacheList CudaDecoder::open(
    const kernels::SequenceKv& sequence,
    const std::vector<mx::array>& previous) const {
  int from = sequence.length();
  cache::CacheList layers;
  for (int i = 0; i < shape_.layers; ++i) {
    auto read = [&](int part) {
      return decoder_->read_kv(sequence.held_blocks(), i, part, from, previous);
    };
    layers.push_back(
        from == 0 ? std::make_unique<PromptKv>(windows_[i])
                  : std::make_unique<PromptKv>(
                        windows_[i],
                        kernels::DenseView{read(0), read(1)}));
  }
  return layers;
}

mx::array CudaDecoder::close(
    kernels::SequenceKv& sequence,
    const cache::CacheList& layers,
    int length,
    const std::vector<mx::array>& previous) const {
  std::vector<mx::array> keys_values;
  for (const auto& layer : layers) {
    const auto& kv = static_cast<const PromptKv&>(*layer);
    keys_values.push_back(kv.new_keys());
    keys_values.push_back(kv.new_values());
  }
  return decoder_->write_kv(keys_values, sequence.extend(length), previous);
}

}  // namespace mlxx::models
