#include "mlxx/models/cuda_decoder.h"

#include <algorithm>

#include "mlxx/cache/decoder_cache.h"
#include "mlxx/cache/joined_rows.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/models/cuda_weights.h"
#include "mlxx/models/prompt_kv.h"
#include "mlxx/nn/row_adapters.h"

namespace mlxx::models {
namespace {

// Tokens of one pass, all rows together: what bounds its memory.
constexpr int kMostTokens = 8192;

bool equally_long(std::span<kernels::SequenceKv* const> sequences) {
  return std::ranges::all_of(sequences, [&](const kernels::SequenceKv* other) {
    return other->length() == sequences.front()->length();
  });
}

}  // namespace

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
  if (why.empty() && selection.trains) {
    why = "it is trained";
  }
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
  return CudaDecoder(
      std::move(made),
      shape,
      std::move(windows),
      selection.deterministic);
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
  bool apart = adapters && adapters->rows_apart() && batch > 1;
  auto pass = length == 1 ? &CudaDecoder::joined
      : apart             ? &CudaDecoder::prompts_apart
                          : &CudaDecoder::prompts;
  auto [logits, done] =
      (this->*pass)(tokens, sequences, std::move(previous), layer_by_layer);
  state.set_newest(done);
  // Who evaluates the one has the other.
  return mx::depends({mx::astype(logits, mx::float32)}, {done})[0];
}

bool CudaDecoder::append_prompts(
    const mx::array& tokens,
    std::span<const int> lengths,
    cache::CacheList& cache,
    const LayerByLayer& layer_by_layer) const {
  auto& state = static_cast<cache::DecoderCache&>(*cache.front());
  auto sequences = state.sequences(tokens.shape(0));
  if (deterministic_ || !equally_long(sequences)) {
    return false;
  }
  state.set_newest(
      together(tokens, lengths, sequences, state.newest(), layer_by_layer)
          .second);
  return true;
}

CudaDecoder::Result CudaDecoder::joined(
    const mx::array& tokens,
    Sequences sequences,
    std::vector<mx::array> previous,
    const LayerByLayer& layer_by_layer) const {
  std::vector<cache::CacheList> opened;
  std::vector<cache::CacheList*> rows;
  for (size_t b = 0; b < sequences.size(); ++b) {
    opened.push_back(open(sequences.subspan(b, 1), previous));
  }
  for (auto& row : opened) {
    rows.push_back(&row);
  }
  cache::JoinedRows all(rows);
  mx::array logits = layer_by_layer(tokens, all.caches());
  all.give_rows();
  const int one = 1;
  for (size_t b = 0; b < sequences.size(); ++b) {
    previous = {close(sequences.subspan(b, 1), opened[b], {&one, 1}, previous)};
  }
  return {logits, previous.front()};
}

CudaDecoder::Result CudaDecoder::together(
    const mx::array& tokens,
    std::span<const int> lengths,
    Sequences sequences,
    const std::vector<mx::array>& previous,
    const LayerByLayer& layer_by_layer) const {
  cache::CacheList layers = open(sequences, previous);
  mx::array logits = layer_by_layer(tokens, layers);
  return {logits, close(sequences, layers, lengths, previous)};
}

CudaDecoder::Result CudaDecoder::prompts(
    const mx::array& tokens,
    Sequences sequences,
    std::vector<mx::array> previous,
    const LayerByLayer& layer_by_layer) const {
  int length = tokens.shape(1);
  size_t most = deterministic_
      ? 1
      : std::clamp(kMostTokens / length, 1, kernels::cuda::kMaxRows);
  std::vector<mx::array> logits;
  for (size_t from = 0; from < sequences.size();) {
    size_t count = 1;
    while (count < most && from + count < sequences.size() &&
           equally_long(sequences.subspan(from, count + 1))) {
      ++count;
    }
    std::vector<int> lengths(count, length);
    auto [some, done] = together(
        mx::slice(
            tokens,
            {static_cast<int>(from), 0},
            {static_cast<int>(from + count), length}),
        lengths,
        sequences.subspan(from, count),
        previous,
        layer_by_layer);
    logits.push_back(some);
    previous = {done};
    from += count;
  }
  return {
      logits.size() == 1 ? logits.front() : mx::concatenate(logits, 0),
      previous.front()};
}

CudaDecoder::Result CudaDecoder::prompts_apart(
    const mx::array& tokens,
    Sequences sequences,
    std::vector<mx::array> previous,
    const LayerByLayer& layer_by_layer) const {
  int batch = tokens.shape(0);
  int length = tokens.shape(1);
  if (equally_long(sequences) && batch <= kernels::cuda::kMaxRows) {
    std::vector<int> lengths(sequences.size(), length);
    return together(tokens, lengths, sequences, previous, layer_by_layer);
  }
  std::vector<mx::array> logits;
  for (int i = 0; i < length; ++i) {
    auto [row, done] = joined(
        mx::slice(tokens, {0, i}, {batch, i + 1}),
        sequences,
        previous,
        layer_by_layer);
    previous = {done};
    if (row.ndim() == 2) {
      logits.clear();  // of the last token alone
    }
    logits.push_back(row);
  }
  return {
      logits.size() == 1 ? logits.front() : mx::concatenate(logits, 1),
      previous.front()};
}

cache::CacheList CudaDecoder::open(
    Sequences sequences,
    const std::vector<mx::array>& previous) const {
  int from = sequences.front()->length();
  cache::CacheList layers;
  for (int i = 0; i < shape_.layers; ++i) {
    auto read = [&](int part) {
      std::vector<mx::array> rows;
      for (const kernels::SequenceKv* sequence : sequences) {
        rows.push_back(
            decoder_
                ->read_kv(sequence->held_blocks(), i, part, from, previous));
      }
      return rows.size() == 1 ? rows.front() : mx::concatenate(rows, 0);
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
    Sequences sequences,
    const cache::CacheList& layers,
    std::span<const int> lengths,
    const std::vector<mx::array>& previous) const {
  std::vector<mx::array> keys_values;
  for (const auto& layer : layers) {
    const auto& kv = static_cast<const PromptKv&>(*layer);
    keys_values.push_back(kv.new_keys());
    keys_values.push_back(kv.new_values());
  }
  std::vector<kernels::SequenceKv::Step> rows;
  for (size_t b = 0; b < sequences.size(); ++b) {
    rows.push_back(sequences[b]->extend(lengths[b]));
  }
  return decoder_->write_kv(
      keys_values,
      std::move(rows),
      {lengths.begin(), lengths.end()},
      previous);
}

}  // namespace mlxx::models
