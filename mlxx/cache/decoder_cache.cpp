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

}  // namespace mlxx::cache
