#include "mlxx/cache/decoder_cache.h"

#include <algorithm>

#include "mlxx/base/error.h"

namespace mlxx::cache {

std::unique_ptr<DecoderCache> DecoderCache::joined(
    std::span<DecoderCache* const> rows) {
  if (rows.empty()) {
    fail(ErrorKind::internal, "cache", "a batch of no rows");
  }
  auto all = std::make_unique<DecoderCache>(rows.front()->shape_);
  all->rows_.assign(rows.begin(), rows.end());
  return all;
}

std::vector<kernels::SequenceKv*> DecoderCache::sequences(int rows) {
  std::vector<kernels::SequenceKv*> result;
  if (!rows_.empty()) {
    if (std::ssize(rows_) != rows) {
      fail(
          ErrorKind::internal,
          "cache",
          "{} rows for {} caches",
          rows,
          rows_.size());
    }
    for (DecoderCache* row : rows_) {
      result.push_back(row->sequences(1).front());
    }
    return result;
  }
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
  for (const auto& sequence : sequences_) {
    result.push_back(sequence.get());
  }
  return result;
}

std::vector<mx::array> DecoderCache::newest() const {
  std::vector<mx::array> steps;
  if (newest_) {
    steps.push_back(*newest_);
  }
  // Rows that took their last step together have one array.
  for (const DecoderCache* row : rows_) {
    for (const mx::array& step : row->newest()) {
      bool known = std::ranges::any_of(steps, [&](const mx::array& other) {
        return other.id() == step.id();
      });
      if (!known) {
        steps.push_back(step);
      }
    }
  }
  return steps;
}

void DecoderCache::set_newest(const mx::array& done) {
  newest_ = done;
  for (DecoderCache* row : rows_) {
    row->set_newest(done);
  }
}

KVView DecoderCache::append(const mx::array&, const mx::array&) {
  fail(
      ErrorKind::internal,
      "cache",
      "keys and values of a whole decoder are written by its kernel");
}

int DecoderCache::offset() const {
  if (!rows_.empty()) {
    return rows_.front()->offset();
  }
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

std::unique_ptr<LayerCache> DecoderCache::shared_copy(int tokens) const {
  int dropped = offset() - tokens;
  if (tokens < 0 || dropped < 0) {
    fail(ErrorKind::internal, "cache", "{} tokens of {}", tokens, offset());
  }
  auto copy = fork();
  copy->trim(dropped);
  return copy;
}

void DecoderCache::share_front(const LayerCache& other, int tokens) {
  const auto* same = dynamic_cast<const DecoderCache*>(&other);
  // Blocks that a step is still writing to are not covered by what this cache
  // waits for.
  bool is_written = same && (!same->newest_ || same->newest_->is_available());
  if (is_written && !sequences_.empty() && !same->sequences_.empty()) {
    sequences_.front()->share_front(
        *same->sequences_.front(),
        static_cast<size_t>(tokens / kernels::kBlockLength));
  }
}

std::vector<HeldMemory> DecoderCache::memory() const {
  std::vector<HeldMemory> held;
  for (const auto& sequence : sequences_) {
    for (const auto& block : sequence->held_blocks()) {
      held.push_back({block, shape_.block_bytes()});
    }
  }
  return held;
}

std::vector<mx::array> DecoderCache::block(int index) const {
  if (index < 0 || (index + 1) * kBlockTokens > offset()) {
    fail(ErrorKind::internal, "cache", "block {} of {}", index, offset());
  }
  if (!is_in_blocks()) {
    fail(ErrorKind::internal, "cache", "several rows are not in blocks");
  }
  if (newest_) {
    mx::eval(*newest_);
  }
  return {sequences_.front()->block_bytes(static_cast<size_t>(index))};
}

void DecoderCache::restore_blocks(
    std::span<const std::vector<mx::array>> blocks) {
  std::vector<mx::array> all;
  for (const auto& block : blocks) {
    expect_stored({"decoder", {}, block, {}}, "decoder", 0, 1);
    all.push_back(mx::reshape(mx::contiguous(block[0]), {-1}));
    if (all.back().dtype() != mx::uint8 ||
        all.back().nbytes() != shape_.block_bytes()) {
      fail(
          ErrorKind::bad_file,
          "stored cache",
          "a block of {} bytes, not {}",
          all.back().nbytes(),
          shape_.block_bytes());
    }
  }
  mx::eval(all);
  auto sequence = std::make_unique<kernels::SequenceKv>(shape_);
  for (const mx::array& bytes : all) {
    sequence->append_block(bytes);
  }
  sequences_.clear();
  sequences_.push_back(std::move(sequence));
  newest_.reset();
}

StoredState DecoderCache::store() const {
  if (newest_) {
    mx::eval(*newest_);
  }
  StoredState state{
      "decoder",
      {shape_.layers, shape_.kv_heads, shape_.head_size, shape_.form()},
      {},
      {}};
  for (const auto& sequence : sequences_) {
    std::vector<mx::array> blocks;
    for (size_t i = 0; i < sequence->blocks(); ++i) {
      blocks.push_back(sequence->block_bytes(i));
    }
    mx::array bytes = blocks.empty()
        ? mx::zeros({0, static_cast<int>(shape_.block_bytes())}, mx::uint8)
        : mx::stack(blocks);
    mx::eval(bytes);
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
      shape_.form()};
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
    sequence->fill(
        length,
        mx::reshape(bytes, {-1, static_cast<int>(shape_.block_bytes())}));
    sequences.push_back(std::move(sequence));
  }
  sequences_ = std::move(sequences);
  newest_.reset();
}

std::unique_ptr<LayerCache> DecoderCache::empty_copy() const {
  return std::make_unique<DecoderCache>(shape_);
}

}  // namespace mlxx::cache
