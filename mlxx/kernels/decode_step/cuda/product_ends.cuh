#pragma once

// What products of the decode step take, and what they do with their sums.

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"
#include "mlxx/kernels/decode_step/cuda/device_math.cuh"

namespace mlxx::kernels::cuda {

enum class Into {
  rows,        // y = sum, bfloat16
  residual,    // stream += multiplier * sum; y = stream * gain, and its squares
  activation,  // y = activation(gate) * up, or activation(sum)
  floats,      // floats = softcap * tanh(multiplier * sum / softcap)
};

// y[m, n] = x[m, k] W[n, k]^T of `rows` rows.
struct Product {
  Rows x;
  int rows = 0;
  const uint4* codes = nullptr;
  const void* scales = nullptr;
  int out = 0;     // rows of W
  int strips = 0;  // of 16 rows
  int tiles = 0;   // of 64 columns
  // Of x before its gain: sums of squares [rows, squares_count]; the sums are
  // multiplied by 1 / rms. Null: they are not.
  const float* squares = nullptr;
  int squares_count = 0;
  float inverse_size = 0;
  float eps = 0;
  const float* bias = nullptr;  // [out]

  Into into = Into::rows;
  Rows y;
  float multiplier = 1;
  float* stream = nullptr;       // [rows, out] float32
  const float* gain = nullptr;   // [out] or null: no y
  float* squares_out = nullptr;  // [rows, strips]
  float* floats = nullptr;       // [rows, out]
  float softcap = 0;
  Activation activation = Activation::silu;
  bool gated = true;
};

// Apart, so that what is rarely run is not in the way of what is.
static __device__ __noinline__ float activate_rarely(
    float x,
    Activation activation) {
  if (activation == Activation::gelu) {
    return 0.5f * x * (1.f + erff(x * 0.70710678f));
  }
  if (activation == Activation::gelu_tanh) {
    return 0.5f * x * (1.f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  }
  float r = fmaxf(x, 0.f);
  return r * r;
}
static __device__ __noinline__ float cap(float x, float most) {
  return most * tanhf(x / most);
}
__device__ __forceinline__ float activate(float x, Activation activation) {
  return activation == Activation::silu ? x / (1.f + __expf(-x))
                                        : activate_rarely(x, activation);
}

// Loaded before the sums are there.
struct EndInputs {
  float bias = 0;
  float gain = 0;
  float old = 0;  // of the stream
};

__device__ __forceinline__ void
load_constants(const Product& p, int n, EndInputs& in) {
  if (n < p.out) {
    in.bias = p.bias ? p.bias[n] : 0.f;
    in.gain = p.into == Into::residual && p.gain ? p.gain[n] : 0.f;
  }
}
__device__ __forceinline__ void
load_stream(const Product& p, int m, int n, EndInputs& in) {
  if (p.into == Into::residual && m < p.rows && n < p.out) {
    in.old = p.stream[static_cast<size_t>(m) * p.out + n];
  }
}

// Gives a sum of row m to where it goes. 16 lanes side by side have the 16
// columns `o` of a strip; whole warps call it.
template <Into INTO>
__device__ __forceinline__ void finish_into(
    const Product& p,
    int m,
    int strip,
    int o,
    float sum,
    float inverse_rms,
    const EndInputs& in) {
  int n = strip * 16 + o;
  bool on = m < p.rows && n < p.out && strip < p.strips;
  float v = sum * inverse_rms + in.bias;
  if constexpr (INTO == Into::rows) {
    if (on) {
      p.y.data[p.y.at(m, n)] = __float2bfloat16(v);
    }
  } else if constexpr (INTO == Into::floats) {
    if (on) {
      v *= p.multiplier;
      if (p.softcap > 0) {
        v = cap(v, p.softcap);
      }
      p.floats[static_cast<size_t>(m) * p.out + n] = v;
    }
  } else if constexpr (INTO == Into::activation) {
    if (!p.gated) {
      if (on) {
        p.y.data[p.y.at(m, n)] = __float2bfloat16(activate(v, p.activation));
      }
      return;
    }
    float up = __shfl_down_sync(~0u, v, 8);
    if (on && o < 8) {
      p.y.data[p.y.at(m, strip * 8 + o)] =
          __float2bfloat16(activate(v, p.activation) * up);
    }
  } else {
    float square = 0;
    if (on) {
      float h = in.old + p.multiplier * v;
      p.stream[static_cast<size_t>(m) * p.out + n] = h;
      square = h * h;
      if (p.gain) {
        p.y.data[p.y.at(m, n)] = __float2bfloat16(h * in.gain);
      }
    }
    if (p.squares_out) {
#pragma unroll
      for (int s = 8; s; s >>= 1) {
        square += __shfl_xor_sync(~0u, square, s);
      }
      if (o == 0 && on) {
        p.squares_out[static_cast<size_t>(m) * p.strips + strip] = square;
      }
    }
  }
}

// The same for kernels that are compiled once for all.
__device__ __forceinline__ void finish(
    const Product& p,
    int m,
    int strip,
    int o,
    float sum,
    float inverse_rms,
    const EndInputs& in) {
  switch (p.into) {
    case Into::rows:
      return finish_into<Into::rows>(p, m, strip, o, sum, inverse_rms, in);
    case Into::residual:
      return finish_into<Into::residual>(p, m, strip, o, sum, inverse_rms, in);
    case Into::activation:
      return finish_into<Into::activation>(
          p,
          m,
          strip,
          o,
          sum,
          inverse_rms,
          in);
    case Into::floats:
      return finish_into<Into::floats>(p, m, strip, o, sum, inverse_rms, in);
  }
}

// Sums of squares of a row as its 1 / rms: a warp's work in two parts.
struct RowSquares {
  static constexpr int kAtOnce = 8;
  float part[kAtOnce];

  __device__ __forceinline__ void load(const Product& p, int m, int lane) {
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      int at = lane + 32 * i;
      part[i] = m < p.rows && at < p.squares_count
          ? p.squares[static_cast<size_t>(m) * p.squares_count + at]
          : 0.f;
    }
  }
  __device__ __forceinline__ float
  inverse_rms(const Product& p, int m, int lane) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      sum += part[i];
    }
    if (m < p.rows) {
      for (int at = lane + 32 * kAtOnce; at < p.squares_count; at += 32) {
        sum += p.squares[static_cast<size_t>(m) * p.squares_count + at];
      }
    }
    return rsqrtf(sum_of_warp(sum) * p.inverse_size + p.eps);
  }
};

// 1 / rms of every row, by the warps of a block.
template <int WARPS>
__device__ __forceinline__ void
find_inverse_rms(const Product& p, float* inverse_rms, int warp, int lane) {
#pragma unroll 1
  for (int m = warp; m < p.rows; m += WARPS) {
    RowSquares squares;
    squares.load(p, m, lane);
    float r = squares.inverse_rms(p, m, lane);
    if (lane == 0) {
      inverse_rms[m] = r;
    }
  }
}

}  // namespace mlxx::kernels::cuda
