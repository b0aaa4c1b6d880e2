// Compiled once per instruction set, with MLXX_ATTENTION_TILES naming the table
// of that variant.
#include "mlxx/kernels/attention/attention_tiles.h"
#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

// Sums of a tile in registers.
#if defined(__AVX512F__)
constexpr int kRows = 6;
constexpr int kVectors = 4;
#elif defined(__AVX2__)
constexpr int kRows = 6;
constexpr int kVectors = 2;
#else
constexpr int kRows = 4;
constexpr int kVectors = 4;
#endif

static_assert(kScoreColumns % kWidth == 0 && kScoreTile % kWidth == 0);

template <int rows, int vectors>
MLXX_INLINE void
multiply_block(const TileProduct& p, int64_t row, int64_t column) {
  Floats sums[rows][vectors];
  float* y = p.y + row * p.y_stride + column;
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = p.add ? load(y + r * p.y_stride + v * kWidth) : Floats{};
    }
  }
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b + column;
  for (int64_t k = 0; k < p.depth; ++k, b += p.b_stride) {
    Floats right[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      right[v] = load(b + v * kWidth);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      Floats left = broadcast(a[r * p.a_stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        sums[r][v] = multiply_add(left, right[v], sums[r][v]);
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      store(y + r * p.y_stride + v * kWidth, sums[r][v]);
    }
  }
}

template <int vectors>
void multiply_columns(const TileProduct& p, int64_t column) {
  int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) {
    multiply_block<kRows, vectors>(p, row, column);
  }
  for (; row < p.rows; ++row) {
    multiply_block<1, vectors>(p, row, column);
  }
}

void multiply(const TileProduct& p) {
  int64_t column = 0;
  for (; column + kVectors * kWidth <= p.columns; column += kVectors * kWidth) {
    multiply_columns<kVectors>(p, column);
  }
  for (; column < p.columns; column += kWidth) {
    multiply_columns<1>(p, column);
  }
}

void transpose(
    const float* x,
    int64_t x_stride,
    int64_t rows,
    int64_t columns,
    float* y,
    int64_t y_stride) {
  constexpr int64_t kBlock = 16;
  for (int64_t row = 0; row < rows; row += kBlock) {
    int64_t end = row + kBlock < rows ? row + kBlock : rows;
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t r = row; r < end; ++r) {
        y[column * y_stride + r] = x[r * x_stride + column];
      }
    }
  }
}

void scale(const float* x, float factor, int64_t count, float* y) {
  Floats by = broadcast(factor);
  for (int64_t i = 0; i < count; i += kWidth) {
    store(y + i, load(x + i) * by);
  }
}

float dot(const float* x, const float* y, int64_t count) {
  Floats sum = {};
  for (int64_t i = 0; i < count; i += kWidth) {
    sum = multiply_add(load(x + i), load(y + i), sum);
  }
  return sum_lanes(sum);
}

void cap(float* scores, float most, int64_t count) {
  Floats by = broadcast(most);
  for (int64_t i = 0; i < count; i += kWidth) {
    store(scores + i, softcap_lanes(load(scores + i), by));
  }
}

// e^(score - most), 0 for a hidden one.
MLXX_INLINE Floats weight(Floats score, Floats most) {
  Floats p = exponential(score - most);
  return score > broadcast(0.5f * kHiddenScore) ? p : Floats{};
}

void soften(float* scores, SoftmaxState& state, float* out, int64_t size) {
  Floats largest = load(scores);
  for (int i = kWidth; i < kScoreTile; i += kWidth) {
    largest = larger(largest, load(scores + i));
  }
  float most = largest_lane(largest);
  if (most > state.most) {
    // All that is there is zero if there was no score.
    float shrink = exponential(broadcast(state.most - most))[0];
    if (state.sum == 0) {
      shrink = 0;
    }
    state.sum *= shrink;
    Floats by = broadcast(shrink);
    for (int64_t i = 0; i < size; i += kWidth) {
      store(out + i, load(out + i) * by);
    }
    state.most = most;
  }
  Floats sum = {};
  Floats above = broadcast(state.most);
  for (int i = 0; i < kScoreTile; i += kWidth) {
    Floats p = weight(load(scores + i), above);
    store(scores + i, p);
    sum = sum + p;
  }
  state.sum += sum_lanes(sum);
}

void differentiate(
    float* scores,
    float* d,
    const float* log_sum,
    const float* delta,
    bool each,
    float cap) {
  Floats one_sum = broadcast(log_sum[0]);
  Floats one_delta = broadcast(delta[0]);
  for (int i = 0; i < kScoreTile; i += kWidth) {
    Floats score = load(scores + i);
    Floats p = weight(score, each ? load(log_sum + i) : one_sum);
    Floats change = p * (load(d + i) - (each ? load(delta + i) : one_delta));
    if (cap != 0) {
      Floats part = score / broadcast(cap);
      Floats slope = broadcast(1.0f) - part * part;
      change =
          score > broadcast(0.5f * kHiddenScore) ? change * slope : Floats{};
    }
    store(scores + i, p);
    store(d + i, change);
  }
}

}  // namespace

extern const AttentionTiles MLXX_ATTENTION_TILES =
    {multiply, transpose, scale, dot, cap, soften, differentiate};

}  // namespace mlxx::kernels
