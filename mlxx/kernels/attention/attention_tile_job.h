#pragma once

#include <vector>

#include "mlxx/kernels/attention/attention_tiles.h"
#include "mlxx/kernels/attention/seen_tokens.h"

namespace mlxx::kernels {

// Rows of `size` adjacent numbers for each token of each head.
struct HeadRows {
  const float* data = nullptr;
  int64_t strides[3] = {};  // batch, head, token

  const float* at(int64_t b, int64_t h, int64_t t) const {
    return data + b * strides[0] + h * strides[1] + t * strides[2];
  }
};

// The same to write to, [B, L, H, size].
struct HeadResult {
  float* data = nullptr;
  int64_t length = 0;
  int64_t heads = 0;
  int64_t size = 0;

  float* at(int64_t b, int64_t h, int64_t t) const {
    return data + ((b * length + t) * heads + h) * size;
  }
  int64_t stride() const {
    return heads * size;
  }
};

// Tiled attention of whole texts, forward and backward, cut into pieces that
// may be computed in any order on any thread.
struct AttentionTileJob {
  const AttentionTiles* tiles;
  const std::vector<SeenTokens>* seen;  // [L]
  int64_t batch;
  int64_t heads;
  int64_t kv_heads;
  int64_t length;
  int64_t size;
  float softcap;

  // Packed: queries are scaled, [B, H, padded, size]; those turned over are
  // [B, H, size, padded]. Past the last token: zeros.
  int64_t padded;
  const float* queries = nullptr;
  const float* queries_over = nullptr;
  const float* keys_over = nullptr;
  const float* values_over = nullptr;
  const float* change_over = nullptr;
  HeadRows keys;
  HeadRows values;
  HeadRows change;                // the output's cotangent
  const float* sinks = nullptr;   // [H]
  float* log_sums = nullptr;      // [B, H, padded]
  const float* deltas = nullptr;  // [B, H, padded]

  int64_t query_pieces() const {
    return batch * heads * tile_count();
  }
  int64_t key_pieces() const {
    return batch * kv_heads * tile_count();
  }
  int64_t tile_count() const {
    return (length + kScoreTile - 1) / kScoreTile;
  }

  // Outputs of a tile of queries, and their log-sums.
  void attend(int64_t piece, HeadResult out) const;
  // Cotangents of a tile of queries, before they were scaled by `scale`.
  void differentiate_queries(int64_t piece, float scale, HeadResult out) const;
  // Of a tile of keys and of values.
  void differentiate_keys(
      int64_t piece,
      HeadResult keys_out,
      HeadResult values_out) const;

 private:
  enum class Seen { none, some, all };
  Seen seen_of(int64_t query_tile, int64_t key_tile) const;
  void hide(int64_t query, int64_t key_tile, float* scores) const;
  int64_t rows_in(int64_t tile) const {
    int64_t left = length - tile * kScoreTile;
    return left < kScoreTile ? left : kScoreTile;
  }
  const float* packed(const float* from, int64_t group, int64_t row) const {
    return from + (group * padded + row) * size;
  }
};

}  // namespace mlxx::kernels
