#pragma once

#include <cstdint>

// What attention with a backward pass does to tiles of scores, compiled once
// per instruction set from attention_tiles_cpu.cpp, which includes no other
// header. Every number is a sum in an order of its own: neither threads nor
// other rows change its bits.
namespace mlxx::kernels {

// Queries and keys of a tile.
inline constexpr int kScoreTile = 64;
// Head sizes, and so the columns of products, are multiples of this.
inline constexpr int kScoreColumns = 16;
inline constexpr float kHiddenScore = -3.0e38f;

// y [rows, columns] = a [rows, depth] times b [depth, columns], or added to it.
struct TileProduct {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  int64_t rows;
  int64_t depth;
  int64_t columns;
  bool add;
  float* y;
  int64_t y_stride;
};

// Where a row of a tile of scores comes in to a softmax in pieces.
struct SoftmaxState {
  float most;  // the largest score
  float sum;
};

struct AttentionTiles {
  void (*multiply)(const TileProduct& product);
  // y [columns][rows], y_stride apart, = x [rows][columns]
  void (*transpose)(
      const float* x,
      int64_t x_stride,
      int64_t rows,
      int64_t columns,
      float* y,
      int64_t y_stride);
  // y = factor * x
  void (*scale)(const float* x, float factor, int64_t count, float* y);
  float (*dot)(const float* x, const float* y, int64_t count);
  // score = cap * tanh(score / cap)
  void (*cap)(float* scores, float cap, int64_t count);
  // scores [kScoreTile], hidden ones kHiddenScore, become e^(score - most); the
  // sums so far, out [size], shrink if `most` grows.
  void (*soften)(float* scores, SoftmaxState& state, float* out, int64_t size);
  // scores become probabilities e^(score - log_sum) and d, their cotangents,
  // those of the scores: p * (d - delta). log_sum and delta [kScoreTile], or
  // one number each for the whole row. With a cap: of the scores before it.
  void (*differentiate)(
      float* scores,
      float* d,
      const float* log_sum,
      const float* delta,
      bool each,
      float cap);
};

extern const AttentionTiles kAttentionTilesPortable;
extern const AttentionTiles kAttentionTilesAvx2;
extern const AttentionTiles kAttentionTilesAvx512;

}  // namespace mlxx::kernels
