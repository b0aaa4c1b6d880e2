#pragma once

#include <cstdint>

// Kernels that work on rows of float32, compiled once per instruction set from
// row_kernels_cpu.cpp, which includes no other header. A row's result depends
// on that row alone, never on how many there are or which thread has it.
namespace mlxx::kernels {

// One query against the first `length` keys.
struct AttentionRow {
  const float* query;   // [size]
  const float* keys;    // rows of `size`, key_stride apart
  const float* values;  // rows of `size`, value_stride apart
  int64_t key_stride;
  int64_t value_stride;
  int64_t length;
  int64_t size;  // a multiple of kAttentionSizeStep
  float scale;
  float softcap;       // of the scores: softcap * tanh(score / softcap); 0: no
  const float* added;  // to the scores then, [length], or null
  const float* sink;   // one more score, of a key without a value, or null
  float* scores;       // room for `length` rounded up to kAttentionSizeStep
  float* out;          // [size]
};

// A row of an output head, before its multipliers.
struct ScoreRow {
  float* scores;  // [count]
  int64_t count;
  int64_t target;
  float factor;   // of the scores: the logits
  float softcap;  // of those: softcap * tanh(logit / softcap); 0: none
};

inline constexpr int kAttentionSizeStep = 16;

struct RowKernels {
  // y = x / sqrt(mean(x^2) + eps) * weight
  void (*rms_norm)(
      const float* x,
      const float* weight,
      float eps,
      int64_t n,
      float* y);
  // y = silu(gate) * up
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* y);
  // Derivatives in x of d * rms_norm and in both inputs of d * swiglu.
  void (*rms_norm_gradient)(
      const float* x,
      const float* weight,
      const float* d,
      float eps,
      int64_t n,
      float* in_x);
  void (*swiglu_gradient)(
      const float* gate,
      const float* up,
      const float* d,
      int64_t n,
      float* in_gate,
      float* in_up);
  // Rotates (x[i], x[half + i]) by the angle whose cosine and sine are given.
  void (*rotate_halves)(
      const float* x,
      const float* cosines,
      const float* sines,
      int64_t half,
      float* y);
  // out = softmax(scale * keys query) values. Weights below e^-87 are 0.
  void (*attend)(const AttentionRow& row);
  // log softmax(logits)[target]; the scores become its derivative in them.
  float (*score_target)(const ScoreRow& row);
};

extern const RowKernels kRowKernelsPortable;
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;

}  // namespace mlxx::kernels
