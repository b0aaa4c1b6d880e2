// Compiled once per instruction set, with MLXX_LAYER_KERNELS naming the table
// of that variant.
#include "mlxx/kernels/layer_kernels.h"
#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

void layer_norm(
    const float* x,
    const float* weight,
    const float* bias,
    float eps,
    int64_t n,
    float* y) {
  Floats total = {};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    total += load(x + i);
  }
  const int64_t whole = i;
  const int64_t count = n - whole;
  total += load_some(x + whole, count);
  Floats mean = broadcast(sum_lanes(total) / static_cast<float>(n));
  Floats squares = {};
  for (i = 0; i < whole; i += kWidth) {
    Floats v = load(x + i) - mean;
    squares = multiply_add(v, v, squares);
  }
  Floats rest = load_some(x + whole, count) - mean;
  for (int lane = static_cast<int>(count); lane < kWidth; ++lane) {
    rest[lane] = 0;
  }
  squares = multiply_add(rest, rest, squares);
  float variance = sum_lanes(squares) / static_cast<float>(n);
  Floats scale = broadcast(1.0f / __builtin_sqrtf(variance + eps));
  for (i = 0; i < whole; i += kWidth) {
    Floats v = (load(x + i) - mean) * scale * load(weight + i);
    store(y + i, bias ? v + load(bias + i) : v);
  }
  Floats v = rest * scale * load_some(weight + whole, count);
  if (bias) {
    v += load_some(bias + whole, count);
  }
  store_some(y + whole, v, count);
}

template <typename Function>
MLXX_INLINE void activate(
    const Function& function,
    const float* x,
    const float* factor,
    int64_t n,
    float* y) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Floats v = function(load(x + i));
    store(y + i, factor ? v * load(factor + i) : v);
  }
  if (i < n) {
    Floats v = function(load_some(x + i, n - i));
    v = factor ? v * load_some(factor + i, n - i) : v;
    store_some(y + i, v, n - i);
  }
}

// x / (1 + e^-t)
MLXX_INLINE Floats times_sigmoid(Floats x, Floats t) {
  return x / (broadcast(1.0f) + exponential(-t));
}

void silu(const float* x, const float* factor, int64_t n, float* y) {
  activate([](Floats v) { return times_sigmoid(v, v); }, x, factor, n, y);
}

// (1 + tanh(t)) / 2 is the logistic function of 2 t.
void gelu_tanh(const float* x, const float* factor, int64_t n, float* y) {
  activate(
      [](Floats v) {
        const Floats cubic = broadcast(0.044715f * 1.5957691216f);
        const Floats linear = broadcast(1.5957691216f);  // 2 sqrt(2 / pi)
        return times_sigmoid(v, v * multiply_add(cubic, v * v, linear));
      },
      x,
      factor,
      n,
      y);
}

// x / 2 erfc(-x / sqrt(2)). erfc(u) = exp(-u^2) t P(t) with t = 1 / (1 + 0.35
// u) for u >= 0 (the form of Hastings, 1955), P fitted to a relative error of
// 1e-8 by tools that minimise the largest one.
MLXX_INLINE Floats gelu_lanes(Floats x) {
  const Floats zero = {};
  Floats u = (x < zero ? -x : x) * broadcast(0.70710678119f);
  Floats t = broadcast(1.0f) / multiply_add(broadcast(0.35f), u, broadcast(1));
  Floats p = broadcast(0.0366808867f);
  p = multiply_add(p, t, broadcast(-0.149224044f));
  p = multiply_add(p, t, broadcast(0.157661699f));
  p = multiply_add(p, t, broadcast(0.00554603425f));
  p = multiply_add(p, t, broadcast(0.0578980929f));
  p = multiply_add(p, t, broadcast(0.162593465f));
  p = multiply_add(p, t, broadcast(0.145090314f));
  p = multiply_add(p, t, broadcast(0.18930331f));
  p = multiply_add(p, t, broadcast(0.196956283f));
  p = multiply_add(p, t, broadcast(0.197493966f));
  Floats tail = exponential(-u * u) * t * p * broadcast(0.5f);
  return x * (x < zero ? tail : broadcast(1.0f) - tail);
}

void gelu(const float* x, const float* factor, int64_t n, float* y) {
  activate([](Floats v) { return gelu_lanes(v); }, x, factor, n, y);
}

void relu_squared(const float* x, const float* factor, int64_t n, float* y) {
  activate(
      [](Floats v) {
        Floats positive = larger(v, Floats{});
        return positive * positive;
      },
      x,
      factor,
      n,
      y);
}

void softcap(const float* x, float cap, int64_t n, float* y) {
  Floats scale = broadcast(cap);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    store(y + i, softcap_lanes(load(x + i), scale));
  }
  store_some(y + i, softcap_lanes(load_some(x + i, n - i), scale), n - i);
}

float dot(const float* a, const float* x, int64_t n) {
  Floats sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    sums[0] = multiply_add(load(a + i), load(x + i), sums[0]);
    sums[1] = multiply_add(load(a + i + kWidth), load(x + i + kWidth), sums[1]);
  }
  for (; i < n; i += kWidth) {
    int64_t count = n - i < kWidth ? n - i : kWidth;
    sums[0] =
        multiply_add(load_some(a + i, count), load_some(x + i, count), sums[0]);
  }
  return sum_lanes(sums[0] + sums[1]);
}

// Four rows share what is loaded of x; each is summed as in dot().
void dot_rows(
    const float* a,
    int64_t rows,
    const float* x,
    int64_t n,
    float* z) {
  int64_t r = 0;
  for (; n % (2 * kWidth) == 0 && r + 4 <= rows; r += 4) {
    Floats sums[4][2] = {};
    for (int64_t i = 0; i < n; i += 2 * kWidth) {
      Floats first = load(x + i);
      Floats second = load(x + i + kWidth);
      for (int k = 0; k < 4; ++k) {
        const float* row = a + (r + k) * n + i;
        sums[k][0] = multiply_add(load(row), first, sums[k][0]);
        sums[k][1] = multiply_add(load(row + kWidth), second, sums[k][1]);
      }
    }
    for (int k = 0; k < 4; ++k) {
      z[r + k] = sum_lanes(sums[k][0] + sums[k][1]);
    }
  }
  for (; r < rows; ++r) {
    z[r] = dot(a + r * n, x, n);
  }
}

void add_rows(
    const float* z,
    int64_t rows,
    const float* b,
    int64_t n,
    float* y) {
  for (int64_t i = 0; i < n; i += kWidth) {
    Floats sum = load(y + i);
    for (int64_t r = 0; r < rows; ++r) {
      sum = multiply_add(broadcast(z[r]), load(b + r * n + i), sum);
    }
    store(y + i, sum);
  }
}

}  // namespace

extern const LayerKernels MLXX_LAYER_KERNELS;
const LayerKernels MLXX_LAYER_KERNELS = {
    layer_norm,
    silu,
    gelu,
    gelu_tanh,
    relu_squared,
    softcap,
    dot_rows,
    add_rows};

}  // namespace mlxx::kernels
