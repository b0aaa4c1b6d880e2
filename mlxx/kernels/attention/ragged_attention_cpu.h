#pragma once

#include <cstdint>
#include <vector>

#include "mlxx/kernels/attention/block_attention.h"
#include "mlxx/kernels/attention/ragged_attention.h"

namespace mlxx::kernels {

// The whole of ragged_attention() on float32 numbers, cut into pieces of some
// queries of one key head of one text. Every piece lays the keys it needs out
// in tiles of its own.
class RaggedAttentionJob {
 public:
  struct Sizes {
    int64_t heads;
    int64_t kv_heads;
    int64_t size;  // of a head, a multiple of kHeadSizeStep
  };

  RaggedAttentionJob(
      const RaggedAttention& texts,
      const Sizes& sizes,
      const BlockAttention& kernels);

  // Rows [T, heads * size] and [T, kv_heads * size], all contiguous.
  struct Arrays {
    const float* queries;
    const float* keys;
    const float* values;
    float* out;
  };
  // The pieces thread, thread + threads, ...
  void run(const Arrays& arrays, int thread, int threads) const;

 private:
  struct Piece {
    int64_t text_begin;  // rows of the text
    int64_t text_end;
    int64_t query_begin;  // of these the piece has
    int64_t query_end;
    int64_t kv_head;
  };
  struct Scratch;

  void compute(const Arrays& arrays, const Piece& piece, Scratch& scratch)
      const;
  void attend(
      const Arrays& arrays,
      const Piece& piece,
      int64_t key_begin,
      int64_t first,
      int64_t count,
      Scratch& scratch) const;
  // Which rows the query in that row sees.
  int64_t seen_begin(const Piece& piece, int64_t row) const;
  int64_t seen_end(const Piece& piece, int64_t row) const;

  float scale_;
  int64_t reach_;
  bool causal_;
  Sizes sizes_;
  const BlockAttention& kernels_;
  std::vector<Piece> pieces_;
};

}  // namespace mlxx::kernels
