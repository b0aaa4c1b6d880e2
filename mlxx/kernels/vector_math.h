#pragma once

// Sums, maxima and elementary functions of vectors, under the same rules as
// vector_lanes.h.
#include "mlxx/kernels/vector_lanes.h"

namespace {

// The last, partial vector of a row; lanes past the end hold zeros.
MLXX_INLINE Floats load_some(const float* p, int64_t count) {
  Floats v = {};
  for (int64_t i = 0; i < count; ++i) {
    v[i] = p[i];
  }
  return v;
}

MLXX_INLINE void store_some(float* p, Floats v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    p[i] = v[i];
  }
}

// Halves are added until one number is left.
MLXX_INLINE float sum_lanes(Floats v) {
  float t[kWidth];
  store(t, v);
#pragma GCC unroll 4
  for (int n = kWidth / 2; n > 0; n /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) {
      t[i] += t[i + n];
    }
  }
  return t[0];
}

MLXX_INLINE Floats larger(Floats a, Floats b) {
  return a > b ? a : b;
}

// e^x to about one unit in the last place, x cut to where the result is a
// normal number.
MLXX_INLINE Floats exponential(Floats x) {
  const Floats lowest = broadcast(-87.0f);
  const Floats highest = broadcast(88.0f);
  x = x > lowest ? x : lowest;
  x = x < highest ? x : highest;
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits.
  const Floats rounder = broadcast(12582912.0f);
  Floats shifted = multiply_add(x, broadcast(1.44269504f), rounder);
  Floats n = shifted - rounder;
  Floats r = multiply_add(n, broadcast(-0.693359375f), x);
  r = multiply_add(n, broadcast(2.12194440e-4f), r);
  Floats p = broadcast(1.9875691500e-4f);
  p = multiply_add(p, r, broadcast(1.3981999507e-3f));
  p = multiply_add(p, r, broadcast(8.3334519073e-3f));
  p = multiply_add(p, r, broadcast(4.1665795894e-2f));
  p = multiply_add(p, r, broadcast(1.6666665459e-1f));
  p = multiply_add(p, r, broadcast(5.0000001201e-1f));
  p = multiply_add(p * r, r, r + broadcast(1.0f));
  Ints power = ((Ints)shifted - (Ints)rounder + 127) << 23;
  return p * (Floats)power;
}

// An odd polynomial near zero, where 1 - 2 / (e^2x + 1) cancels.
MLXX_INLINE Floats tanh_lanes(Floats x) {
  Floats magnitude = x < Floats{} ? -x : x;
  const Floats one = broadcast(1.0f);
  const Floats two = broadcast(2.0f);
  Floats far = one - two / (exponential(two * magnitude) + one);
  Floats square = x * x;
  Floats p = broadcast(-0.00552863726f);
  p = multiply_add(p, square, broadcast(0.02048332f));
  p = multiply_add(p, square, broadcast(-0.0536929695f));
  p = multiply_add(p, square, broadcast(0.133308998f));
  p = multiply_add(p, square, broadcast(-0.333332629f));
  Floats near = multiply_add(x * square, p, x);
  far = x < Floats{} ? -far : far;
  return magnitude < broadcast(0.65f) ? near : far;
}

MLXX_INLINE Floats softcap_lanes(Floats x, Floats cap) {
  return cap * tanh_lanes(x / cap);
}

MLXX_INLINE float largest_lane(Floats v) {
  float largest = v[0];
  for (int i = 1; i < kWidth; ++i) {
    largest = v[i] > largest ? v[i] : largest;
  }
  return largest;
}

MLXX_INLINE Floats swiglu_lanes(Floats gate, Floats up) {
  Floats one = broadcast(1.0f);
  return gate / (one + exponential(-gate)) * up;
}

}  // namespace
