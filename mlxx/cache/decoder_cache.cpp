#include "mlxx/cache/decoder_cache.h"

#include <algorithm>

#include "mlxx/base/error.h"

namespace mlxx::cache {

std::span<const std::unique_ptr<kernels::SequenceKv>> DecoderCache::sequences(
    int rows) {
  while (sequences_.empty() || (!newest_ && std::ssize(sequences_) < rows)) {
    sequences_.push_back(std::make_unique<kernels::SequenceKv>(shape_));
  }
  if (std::ssize(sequences_) != rows) {
    fail(
        ErrorKind::internal,
        "cache",
        "{} rows appended to a cache of {}",
        rows,
        sequences_.size());
  }
  return sequences_;
}

KVView DecoderCache::append(const mx::array&, const mx::array&) {
  fail(
      ErrorKind::internal,
      "cache",
      "keys and values of a whole decoder are written by its kernel");
}

int DecoderCache::offset() const {
  return sequences_.empty() ? 0 : sequences_.front()->length();
}

int DecoderCache::trim(int n) {
  n = std::clamp(n, 0, offset());
  for (auto& sequence : sequences_) {
    sequence->truncate(sequence->length() - n);
  }
  return n;
}

size_t DecoderCache::nbytes() const {
  size_t bytes = 0;
  for (const auto& sequence : sequences_) {
    bytes += sequence->nbytes();
  }
  return bytes;
}

std::vector<mx::array> DecoderCache::state() const {
  if (!newest_) {
    return {};
  }
  return {*newest_};
}

KVCache::Mask DecoderCache::make_mask(int L) const {
  return {L > 1 ? "causal" : "", std::nullopt};
}

std::unique_ptr<DecoderCache> DecoderCache::fork() const {
  auto other = std::make_unique<DecoderCache>(shape_);
  for (const auto& sequence : sequences_) {
    other->sequences_.push_back(sequence->fork());
  }
  other->newest_ = newest_;
  return other;
}

StoredState DecoderCache::store() const {
  if (newest_) {
    mx::eval(*newest_);
  }
  StoredState state{
      "decoder",
      {shape_.layers,
       shape_.kv_heads,
       shape_.head_size,
       static_cast<int64_t>(shape_.type)},
      {},
      {}};
  for (const auto& sequence : sequences_) {
    mx::array bytes = mx::zeros(
        {static_cast<int>(sequence->blocks()),
         static_cast<int>(shape_.block_bytes())},
        mx::uint8);
    mx::eval(bytes);
    sequence->copy_to(bytes.data<std::byte>());
    state.parts.push_back(
        {"sequence", {sequence->length()}, {std::move(bytes)}, {}});
  }
  return state;
}

void DecoderCache::restore(const StoredState& state) {
  expect_stored(state, "decoder", 4, 0, state.parts.size());
  const int64_t mine[] = {
      shape_.layers,
      shape_.kv_heads,
      shape_.head_size,
      static_cast<int64_t>(shape_.type)};
  for (size_t i = 0; i < std::size(mine); ++i) {
    stored_number(state, i, mine[i], mine[i]);
  }
  std::vector<std::unique_ptr<kernels::SequenceKv>> sequences;
  for (const auto& part : state.parts) {
    expect_stored(part, "sequence", 1, 1);
    int length = stored_number(part, 0, 0, INT32_MAX - kernels::kBlockLength);
    auto sequence = std::make_unique<kernels::SequenceKv>(shape_);
    mx::array bytes = mx::contiguous(part.arrays[0]);
    int64_t blocks =
        (int64_t{length} + kernels::kBlockLength - 1) / kernels::kBlockLength;
    if (bytes.dtype() != mx::uint8 ||
        bytes.nbytes() != static_cast<size_t>(blocks) * shape_.block_bytes()) {
      fail(
          ErrorKind::bad_file,
          "stored cache",
          "{} bytes for {} tokens",
          bytes.nbytes(),
          length);
    }
    mx::eval(bytes);
    sequence->fill(length, bytes.data<std::byte>());
    sequences.push_back(std::move(sequence));
  }
  sequences_ = std::move(sequences);
  newest_.reset();
}

std::unique_ptr<LayerCache> DecoderCache::empty_copy() const {
  return std::make_unique<DecoderCache>(shape_);
}

}  // namespace mlxx::cache
