// Compiled once per instruction set, with MLXX_BLOCK_ATTENTION naming the table
// of that variant.
#include "mlxx/kernels/attention/block_attention.h"

#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

// Queries per register tile, and vectors of a value that it sums at a time.
constexpr int kQueries = 6;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kValueVectors = 4;
#else
constexpr int kValueVectors = 2;
#endif
// Vectors that hold the keys' numbers of a tile.
constexpr int kTileVectors = kKeyTile / kWidth;
// Tiles summed at a time.
constexpr int kTiles = kTileVectors >= 2 ? 1 : 2;

template <KvType kType>
MLXX_INLINE Floats load_kv(const void* p, int64_t at) {
  if constexpr (kType == KvType::float16) {
    return load_float16(static_cast<const uint16_t*>(p) + at);
  } else {
    return load(static_cast<const float*>(p) + at);
  }
}

void store_key(
    const float* key,
    int64_t size,
    int64_t token,
    KvType type,
    void* keys) {
  int64_t at = (token / kKeyTile) * size * kKeyTile + token % kKeyTile;
  if (type == KvType::float32) {
    for (int64_t d = 0; d < size; ++d) {
      static_cast<float*>(keys)[at + d * kKeyTile] = key[d];
    }
    return;
  }
  uint16_t halves[kHeadSizeStep];
  for (int64_t d = 0; d < size; d += kHeadSizeStep) {
    for (int i = 0; i < kHeadSizeStep; i += kWidth) {
      store_float16(halves + i, load(key + d + i));
    }
    for (int i = 0; i < kHeadSizeStep; ++i) {
      static_cast<uint16_t*>(keys)[at + (d + i) * kKeyTile] = halves[i];
    }
  }
}

void store_value(
    const float* value,
    int64_t size,
    int64_t token,
    KvType type,
    void* values) {
  int64_t at = token * size;
  for (int64_t d = 0; d < size; d += kWidth) {
    Floats v = load(value + d);
    if (type == KvType::float32) {
      store(static_cast<float*>(values) + at + d, v);
    } else {
      store_float16(static_cast<uint16_t*>(values) + at + d, v);
    }
  }
}

template <KvType kType>
constexpr int64_t kBytes = kType == KvType::float16 ? 2 : 4;

constexpr int64_t kLine = 64;

// Asks for bytes [from, to) of what `p` points to.
MLXX_INLINE void fetch(const void* p, int64_t from, int64_t to) {
  for (int64_t at = from; at < to; at += kLine) {
    __builtin_prefetch(static_cast<const char*>(p) + at);
  }
}

// scores[i][token] = queries . keys, for whole tiles that hold tokens
// [begin, end) of the split.
template <KvType kType, int kRows>
MLXX_INLINE void score(
    const SplitQueries& job,
    int first,
    int64_t begin,
    int64_t end,
    float (*scores)[kSplitLength]) {
  constexpr int kStep = kTiles * kKeyTile;
  for (int64_t token = begin / kStep * kStep; token < end; token += kStep) {
    const void* keys = job.split.keys[token / kBlockLength];
    int64_t tile = token % kBlockLength / kKeyTile;
    // These tokens' values, which the weights meet soon.
    int64_t row = job.size * kBytes<kType>;
    fetch(
        job.split.values[token / kBlockLength],
        token % kBlockLength * row,
        (token % kBlockLength + kStep) * row);
    Floats sum[kRows][kTiles * kTileVectors] = {};
    for (int64_t d = 0; d < job.size; ++d) {
      Floats key[kTiles * kTileVectors];
#pragma GCC unroll 8
      for (int t = 0; t < kTiles; ++t) {
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) {
          key[t * kTileVectors + v] = load_kv<kType>(
              keys,
              ((tile + t) * job.size + d) * kKeyTile + v * kWidth);
        }
      }
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        Floats q = broadcast(job.rows[first + r][d]);
#pragma GCC unroll 8
        for (int v = 0; v < kTiles * kTileVectors; ++v) {
          sum[r][v] = multiply_add(key[v], q, sum[r][v]);
        }
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kTiles * kTileVectors; ++v) {
        store(scores[r] + token + v * kWidth, sum[r][v]);
      }
    }
  }
}

// Weights instead of scores, zero for what the query does not see.
MLXX_INLINE void weigh(
    float* scores,
    float softcap,
    int32_t begin,
    int32_t end,
    SplitState& state) {
  Ints lanes = {};
  for (int i = 0; i < kWidth; ++i) {
    lanes[i] = i;
  }
  if (softcap > 0) {
    Floats cap = broadcast(softcap);
    for (int32_t j = 0; j < kSplitLength; j += kWidth) {
      if (j + kWidth > begin && j < end) {
        store(scores + j, softcap_lanes(load(scores + j), cap));
      }
    }
  }
  Floats most = broadcast(kNoScore);
  for (int32_t j = 0; j < kSplitLength; j += kWidth) {
    if (j + kWidth <= begin || j >= end) {
      continue;
    }
    Ints token = lanes + j;
    Ints seen = (token >= begin) & (token < end);
    most = seen ? larger(load(scores + j), most) : most;
  }
  state.most = largest_lane(most);
  Floats shift = broadcast(state.most);
  Floats total = {};
  const Floats zero = {};
  for (int32_t j = 0; j < kSplitLength; j += kWidth) {
    if (j + kWidth <= begin || j >= end) {
      store(scores + j, zero);
      continue;
    }
    Ints token = lanes + j;
    Ints seen = (token >= begin) & (token < end);
    Floats weight = exponential(load(scores + j) - shift);
    weight = seen ? weight : zero;
    total += weight;
    store(scores + j, weight);
  }
  state.sum = sum_lanes(total);
}

// out[r][d ...] = sum over tokens [begin, end) of weight times value.
template <KvType kType, int kRows, int kVectors, bool kFetches>
MLXX_INLINE void add_values(
    const SplitQueries& job,
    int64_t d,
    int64_t begin,
    int64_t end,
    const float (*weights)[kSplitLength],
    SplitState* states) {
  Floats sum[kRows][kVectors] = {};
  for (int64_t token = begin; token < end; ++token) {
    const void* values = job.split.values[token / kBlockLength];
    if (kFetches) {
      if (const void* next = job.split.next_keys[token / kBlockLength]) {
        int64_t row = job.size * kBytes<kType>;
        int64_t at = token % kBlockLength * row;
        fetch(next, at, at + row);
      }
    }
    int64_t at = token % kBlockLength * job.size + d;
    Floats value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      value[v] = load_kv<kType>(values, at + v * kWidth);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      Floats weight = broadcast(weights[r][token]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = multiply_add(weight, value[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      store(states[r].out + d + v * kWidth, sum[r][v]);
    }
  }
}

template <KvType kType, int kRows>
void attend_tile(const SplitQueries& job, int first, SplitState* states) {
  alignas(64) float scores[kRows][kSplitLength];
  int32_t begin = kSplitLength;
  int32_t end = 0;
  for (int r = 0; r < kRows; ++r) {
    int32_t from = job.begin[first + r];
    int32_t to = job.end[first + r];
    if (from < to) {
      begin = from < begin ? from : begin;
      end = to > end ? to : end;
    }
  }
  score<kType, kRows>(job, first, begin, end, scores);
  for (int r = 0; r < kRows; ++r) {
    weigh(
        scores[r],
        job.softcap,
        job.begin[first + r],
        job.end[first + r],
        states[first + r]);
  }
  int64_t d = 0;
  for (; d + kValueVectors * kWidth <= job.size; d += kValueVectors * kWidth) {
    add_values<kType, kRows, kValueVectors, true>(
        job,
        d,
        begin,
        end,
        scores,
        states + first);
  }
  for (; d < job.size; d += kWidth) {
    add_values<kType, kRows, 1, false>(
        job,
        d,
        begin,
        end,
        scores,
        states + first);
  }
}

template <KvType kType>
void attend_type(const SplitQueries& job, SplitState* states) {
  int first = 0;
  int queries = static_cast<int>(job.queries);
  for (; first + kQueries <= queries; first += kQueries) {
    attend_tile<kType, kQueries>(job, first, states);
  }
  switch (queries - first) {
    case 1:
      return attend_tile<kType, 1>(job, first, states);
    case 2:
      return attend_tile<kType, 2>(job, first, states);
    case 3:
      return attend_tile<kType, 3>(job, first, states);
    case 4:
      return attend_tile<kType, 4>(job, first, states);
    case 5:
      return attend_tile<kType, 5>(job, first, states);
  }
}

void attend(const SplitQueries& job, SplitState* states) {
  if (job.type == KvType::float16) {
    attend_type<KvType::float16>(job, states);
  } else {
    attend_type<KvType::float32>(job, states);
  }
}

void join(const SplitState& later, int64_t size, SplitState& state) {
  float most = later.most > state.most ? later.most : state.most;
  Floats old_part = exponential(broadcast(state.most - most));
  Floats new_part = exponential(broadcast(later.most - most));
  state.sum = state.sum * old_part[0] + later.sum * new_part[0];
  state.most = most;
  for (int64_t d = 0; d < size; d += kWidth) {
    Floats sum = load(state.out + d) * old_part;
    store(state.out + d, multiply_add(load(later.out + d), new_part, sum));
  }
}

void finish(SplitState& state, int64_t size) {
  Floats inverse = broadcast(1.0f / state.sum);
  for (int64_t d = 0; d < size; d += kWidth) {
    store(state.out + d, load(state.out + d) * inverse);
  }
}

}  // namespace

extern const BlockAttention MLXX_BLOCK_ATTENTION;
const BlockAttention MLXX_BLOCK_ATTENTION =
    {store_key, store_value, attend, join, finish};

}  // namespace mlxx::kernels
