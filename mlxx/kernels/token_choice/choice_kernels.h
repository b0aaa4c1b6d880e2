#pragma once

#include <cstdint>

// What choosing a token needs of a row of float32 numbers, compiled once per
// instruction set from choice_kernels_cpu.cpp, which includes no other header.
namespace mlxx::kernels {

// Numbers of a row that are looked at together.
inline constexpr int kChoiceBlock = 64;
// Bounds that are tried in one pass over a row.
inline constexpr int kChoiceBounds = 8;

// A threefry2x32 generator as MLX's random::bits uses it: number i of n comes
// from the key and i alone (https://github.com/google/jax, JEP 263).
struct RandomKey {
  uint32_t first;
  uint32_t second;
};

// Which of kChoiceBlock tokens could win a Gumbel-max draw.
struct ContenderBlock {
  const float* logprobs;  // [count]
  const uint32_t* bits;   // [kChoiceBlock] random, of each token
  int count;
  float top;          // of all log-probabilities
  float temperature;  // positive
  float best;         // what the best one so far has
};

struct ChoiceKernels {
  // The largest of each block, not-a-numbers left out (-inf if there are no
  // others), into [ceil(n / kChoiceBlock)]; returns the largest of all.
  float (*block_maxima)(const float* x, int64_t n, float* maxima);
  // Sum of e^(x - top), of at most 1 each; not a number if one of x is none.
  float (*sum_of_exponentials)(const float* x, int64_t n, float top);
  // y = e^(x - top), the same terms.
  void (*exponentials)(const float* x, int64_t n, float top, float* y);
  // Sums of the weights of the x that reach each of kChoiceBounds bounds.
  void (*weights_at_least)(
      const float* x,
      const float* weights,
      int64_t n,
      const float* bounds,
      float* sums);
  // Bit i is set if low <= x[i] < high; i below `count`, a block at most.
  uint64_t (*between)(const float* x, int count, float low, float high);
  // y = x - amount
  void (*subtract)(const float* x, int64_t n, float amount, float* y);
  // What does not reach the bound becomes -inf.
  void (*drop_below)(float* x, int64_t n, float bound);
  // y = x where its bit is set, else -inf.
  void (*keep_allowed)(
      const float* x,
      const uint32_t* allowed,
      int64_t n,
      float* y);
  // Both halves of threefry2x32 of the counters (from + i, from + i + apart),
  // i below kChoiceBlock.
  void (*random_pairs)(
      RandomKey key,
      uint32_t from,
      uint32_t apart,
      uint32_t* first,
      uint32_t* second);
  // Bit i is set unless token i cannot reach `best`.
  uint64_t (*contenders)(const ContenderBlock& block);
};

extern const ChoiceKernels kChoiceKernelsPortable;
extern const ChoiceKernels kChoiceKernelsAvx2;
extern const ChoiceKernels kChoiceKernelsAvx512;

}  // namespace mlxx::kernels
