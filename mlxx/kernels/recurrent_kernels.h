#pragma once

#include <cstdint>

// Kernels that carry a state from token to token, compiled once per
// instruction set from recurrent_kernels_cpu.cpp. Each lane (a number of the
// value axis, or a channel) is computed by itself, in the order of tokens and
// keys, so its bits depend neither on the other lanes nor on how many tokens
// one call has.
namespace mlxx::kernels {

// The gated delta rule on some lanes of one head of one sequence.
struct DeltaTask {
  const float* queries;  // [tokens, key_size], key_stride apart
  const float* keys;     // the same
  const float* values;   // [tokens, lanes], value_stride apart
  const float* decays;   // [tokens] or [tokens, key_size], decay_stride apart
  const float* betas;    // [tokens], beta_stride apart
  const bool* mask;      // [tokens], or null: every token counts
  float* state;          // [key_size, lanes], state_stride apart; updated
  float* out;            // [tokens, lanes], value_stride apart
  int64_t tokens;
  int64_t key_size;
  int64_t lanes;
  int64_t key_stride;
  int64_t value_stride;
  int64_t decay_stride;
  int64_t decay_step;  // 1: one decay per key; 0: one for all
  int64_t beta_stride;
  int64_t state_stride;
};

// A Mamba2 scan on some lanes of one head of one sequence.
struct ScanTask {
  const float* x;       // [tokens, lanes], x_stride apart
  const float* inputs;  // B [tokens, size], group_stride apart
  const float* reads;   // C [tokens, size], group_stride apart
  const float* steps;   // dt [tokens], step_stride apart
  const float* decays;  // exp(dt * A) [tokens], step_stride apart
  float skip;           // D
  const bool* mask;     // [tokens], or null
  float* state;         // [size, lanes], state_stride apart; updated
  float* out;           // [tokens, lanes], x_stride apart
  int64_t tokens;
  int64_t size;
  int64_t lanes;
  int64_t x_stride;
  int64_t group_stride;
  int64_t step_stride;
  int64_t state_stride;
};

// A depthwise causal convolution on some channels of one sequence.
struct ConvTask {
  const float* state;  // [width - 1, channels], stride apart: what came before
  const float* x;      // [tokens, channels], x_stride apart
  const float* weights;  // [width, channels], weight_stride apart
  const float* bias;     // [channels], or null
  bool silu;
  float* out;  // [tokens, channels], out_stride apart
  int64_t tokens;
  int64_t width;  // at most kMaxConvWidth
  int64_t channels;
  int64_t stride;
  int64_t x_stride;
  int64_t weight_stride;
  int64_t out_stride;
};

inline constexpr int kMaxConvWidth = 8;

// Lanes that one task is best given: 4 vectors of the widest set.
inline constexpr int64_t kLanesPerTask = 64;

struct RecurrentKernels {
  // Per token: S = decay * S; delta = beta * (v - k.S); S = S + k delta;
  // out = q.S. A masked token leaves S alone, its output is 0.
  void (*gated_delta)(const DeltaTask& task);
  // Per token: S = decay * S + B (dt x); out = C.S + D x. A masked token leaves
  // S alone, its output is 0.
  void (*scan)(const ScanTask& task);
  // out[t] = sum of weights[j] * in[t + j] + bias, `in` being state and x one
  // after the other; then silu if wanted.
  void (*short_conv)(const ConvTask& task);
};

extern const RecurrentKernels kRecurrentKernelsPortable;
extern const RecurrentKernels kRecurrentKernelsAvx2;
extern const RecurrentKernels kRecurrentKernelsAvx512;

}  // namespace mlxx::kernels
