#pragma once

#include <cstdint>

// Attention over keys and values that lie in blocks of 64 tokens, compiled once
// per instruction set from block_attention_cpu.cpp, which includes no other
// header. Keys are summed up in splits of a fixed number of tokens, each with
// its own maximum, which are then joined in their order (online softmax,
// Milakov and Gimelshein 2018): so a query's bits depend on its keys alone, not
// on how many queries are computed together, by whom, or how a prompt was cut.
namespace mlxx::kernels {

// Tokens per block, and per tile: keys of a tile lie side by side.
inline constexpr int kBlockLength = 64;
inline constexpr int kKeyTile = 16;
inline constexpr int kSplitBlocks = 2;
inline constexpr int kSplitLength = kSplitBlocks * kBlockLength;
// Head sizes are multiples of this.
inline constexpr int kHeadSizeStep = 16;
// Queries that are computed together at most.
inline constexpr int kSplitQueries = 24;

enum class KvType { float16, float32 };

// One head's part of a split: keys [4 tiles][size][16 tokens] and values [64
// tokens][size] of each block.
struct KvSplit {
  const void* keys[kSplitBlocks];
  const void* values[kSplitBlocks];
  // Keys that will be asked for next, or null: fetched from memory meanwhile.
  const void* next_keys[kSplitBlocks];
};

// Queries of one head against one split.
struct SplitQueries {
  KvSplit split;
  KvType type;
  int64_t size;
  int64_t queries;           // 1 .. kSplitQueries
  const float* const* rows;  // [queries] -> [size], scaled
  // Query i sees tokens begin[i] .. end[i] of the split; none: it is skipped.
  const int32_t* begin;
  const int32_t* end;
  float softcap = 0;  // of the scores; 0: none
};

// What a query has summed so far, [size] numbers that `sum` divides.
struct SplitState {
  float most;  // the largest score
  float sum;
  float* out;
};

struct BlockAttention {
  // Writes one token of one head into a block.
  void (*store_key)(
      const float* key,
      int64_t size,
      int64_t token,
      KvType type,
      void* keys);
  void (*store_value)(
      const float* value,
      int64_t size,
      int64_t token,
      KvType type,
      void* values);
  // Sets states[i] to what the split alone gives.
  void (*attend)(const SplitQueries& job, SplitState* states);
  // Adds a later split to a state that starts as {kNoScore, 0, zeros}, or, with
  // one more score of a key without a value, as {that score, 1, zeros}.
  void (*join)(const SplitState& later, int64_t size, SplitState& state);
  // out[i] /= sum
  void (*finish)(SplitState& state, int64_t size);
};

inline constexpr float kNoScore = -3.0e38f;

extern const BlockAttention kBlockAttentionPortable;
extern const BlockAttention kBlockAttentionAvx2;
extern const BlockAttention kBlockAttentionAvx512;

}  // namespace mlxx::kernels
