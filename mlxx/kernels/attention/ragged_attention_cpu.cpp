#include "mlxx/kernels/attention/ragged_attention_cpu.h"

#include <algorithm>

namespace mlxx::kernels {

namespace {

// Rows of queries in a piece: enough that laying the keys out, which each
// piece does, is little beside the products.
constexpr int64_t kPieceRows = 96;

}  // namespace

struct RaggedAttentionJob::Scratch {
  std::vector<float> keys;     // blocks of [4 tiles][size][16 tokens]
  std::vector<float> values;   // blocks of [64 tokens][size]
  std::vector<float> queries;  // [kSplitQueries][size], scaled
  std::vector<float> later;
};

RaggedAttentionJob::RaggedAttentionJob(
    const RaggedAttention& texts,
    const Sizes& sizes,
    const BlockAttention& kernels)
    : scale_(texts.scale),
      reach_(texts.reach),
      causal_(texts.causal),
      sizes_(sizes),
      kernels_(kernels) {
  int64_t begin = 0;
  for (int length : texts.lengths) {
    int64_t end = begin + length;
    for (int64_t row = begin; row < end; row += kPieceRows) {
      for (int64_t head = 0; head < sizes.kv_heads; ++head) {
        pieces_.push_back(
            {begin, end, row, std::min(row + kPieceRows, end), head});
      }
    }
    begin = end;
  }
}

int64_t RaggedAttentionJob::seen_begin(const Piece& piece, int64_t row) const {
  return reach_ > 0 ? std::max(piece.text_begin, row - reach_)
                    : piece.text_begin;
}

int64_t RaggedAttentionJob::seen_end(const Piece& piece, int64_t row) const {
  int64_t end = causal_ ? row + 1 : piece.text_end;
  return reach_ > 0 ? std::min(end, row + reach_ + 1) : end;
}

void RaggedAttentionJob::run(const Arrays& arrays, int thread, int threads)
    const {
  Scratch scratch;
  size_t rows = static_cast<size_t>(kSplitQueries * sizes_.size);
  scratch.queries.resize(rows);
  scratch.later.resize(rows);
  for (size_t i = thread; i < pieces_.size(); i += threads) {
    compute(arrays, pieces_[i], scratch);
  }
}

void RaggedAttentionJob::compute(
    const Arrays& arrays,
    const Piece& piece,
    Scratch& scratch) const {
  // Splits begin at fixed places of the text, so that its bits do not depend
  // on the pieces.
  int64_t first = seen_begin(piece, piece.query_begin) - piece.text_begin;
  int64_t key_begin = piece.text_begin + first / kSplitLength * kSplitLength;
  int64_t key_end = seen_end(piece, piece.query_end - 1);
  int64_t splits = (key_end - key_begin + kSplitLength - 1) / kSplitLength;
  size_t numbers = static_cast<size_t>(splits * kSplitLength * sizes_.size);
  // Past the end stays what an earlier piece left there: no query sees it.
  if (scratch.keys.size() < numbers) {
    scratch.keys.resize(numbers);
    scratch.values.resize(numbers);
  }
  int64_t stride = sizes_.kv_heads * sizes_.size;
  int64_t block_size = kBlockLength * sizes_.size;
  for (int64_t row = key_begin; row < key_end; ++row) {
    int64_t at = row - key_begin;
    int64_t from = row * stride + piece.kv_head * sizes_.size;
    int64_t block = at / kBlockLength * block_size;
    int64_t token = at % kBlockLength;
    kernels_.store_key(
        arrays.keys + from,
        sizes_.size,
        token,
        KvType::float32,
        scratch.keys.data() + block);
    kernels_.store_value(
        arrays.values + from,
        sizes_.size,
        token,
        KvType::float32,
        scratch.values.data() + block);
  }
  int64_t group = sizes_.heads / sizes_.kv_heads;
  int64_t queries = (piece.query_end - piece.query_begin) * group;
  for (int64_t i = 0; i < queries; i += kSplitQueries) {
    int64_t count = std::min<int64_t>(kSplitQueries, queries - i);
    attend(arrays, piece, key_begin, i, count, scratch);
  }
}

// Queries first .. first + count of the piece, which has those of a group of
// heads for one row after the other.
void RaggedAttentionJob::attend(
    const Arrays& arrays,
    const Piece& piece,
    int64_t key_begin,
    int64_t first,
    int64_t count,
    Scratch& scratch) const {
  int64_t size = sizes_.size;
  int64_t group = sizes_.heads / sizes_.kv_heads;
  int64_t block_size = kBlockLength * size;
  auto row_of = [&](int64_t i) {
    return piece.query_begin + (first + i) / group;
  };
  auto offset_of = [&](int64_t i) {
    int64_t head = piece.kv_head * group + (first + i) % group;
    return (row_of(i) * sizes_.heads + head) * size;
  };
  const float* rows[kSplitQueries];
  SplitState states[kSplitQueries];
  SplitState later[kSplitQueries];
  for (int64_t i = 0; i < count; ++i) {
    const float* query = arrays.queries + offset_of(i);
    float* scaled = scratch.queries.data() + i * size;
    for (int64_t d = 0; d < size; ++d) {
      scaled[d] = query[d] * scale_;
    }
    rows[i] = scaled;
    states[i] = {kNoScore, 0, arrays.out + offset_of(i)};
    std::fill_n(states[i].out, size, 0.0f);
    later[i] = {kNoScore, 0, scratch.later.data() + i * size};
  }
  int64_t from = seen_begin(piece, row_of(0)) - key_begin;
  int64_t to = seen_end(piece, row_of(count - 1)) - key_begin;
  for (int64_t split = from / kSplitLength; split * kSplitLength < to;
       ++split) {
    int64_t start = split * kSplitLength;
    int32_t begin[kSplitQueries];
    int32_t end[kSplitQueries];
    for (int64_t i = 0; i < count; ++i) {
      auto within = [&](int64_t row) {
        return static_cast<int32_t>(
            std::clamp<int64_t>(row - key_begin - start, 0, kSplitLength));
      };
      begin[i] = within(seen_begin(piece, row_of(i)));
      end[i] = within(seen_end(piece, row_of(i)));
    }
    KvSplit kv{};
    for (int64_t b = 0; b < kSplitBlocks; ++b) {
      int64_t block = split * kSplitBlocks + b;
      kv.keys[b] = scratch.keys.data() + block * block_size;
      kv.values[b] = scratch.values.data() + block * block_size;
    }
    SplitQueries job{};
    job.split = kv;
    job.type = KvType::float32;
    job.size = size;
    job.queries = count;
    job.rows = rows;
    job.begin = begin;
    job.end = end;
    kernels_.attend(job, later);
    for (int64_t i = 0; i < count; ++i) {
      if (begin[i] < end[i]) {
        kernels_.join(later[i], size, states[i]);
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    kernels_.finish(states[i], size);
  }
}

}  // namespace mlxx::kernels
