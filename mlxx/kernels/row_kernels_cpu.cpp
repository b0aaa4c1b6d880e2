// Compiled once per instruction set, with MLXX_ROW_KERNELS naming the table of
// that variant.
#include "mlxx/kernels/row_kernels.h"
#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

// Square root and division of single numbers, so that every variant rounds
// them alike.
void rms_norm(
    const float* x,
    const float* weight,
    float eps,
    int64_t n,
    float* y) {
  Floats squares = {};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Floats v = load(x + i);
    squares = multiply_add(v, v, squares);
  }
  Floats rest = load_some(x + i, n - i);
  squares = multiply_add(rest, rest, squares);
  float mean = sum_lanes(squares) / static_cast<float>(n);
  Floats scale = broadcast(1.0f / __builtin_sqrtf(mean + eps));
  for (i = 0; i + kWidth <= n; i += kWidth) {
    store(y + i, load(x + i) * scale * load(weight + i));
  }
  store_some(y + i, rest * scale * load_some(weight + i, n - i), n - i);
}

void swiglu(const float* gate, const float* up, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    store(y + i, swiglu_lanes(load(gate + i), load(up + i)));
  }
  store_some(
      y + i,
      swiglu_lanes(load_some(gate + i, n - i), load_some(up + i, n - i)),
      n - i);
}

// With r = 1 / sqrt(mean(x^2) + eps): r * (d * w - x * r^2 * mean(d * w * x)).
void rms_norm_gradient(
    const float* x,
    const float* weight,
    const float* d,
    float eps,
    int64_t n,
    float* in_x) {
  Floats squares = {};
  Floats products = {};
  auto add = [&](Floats v, Floats w, Floats c) {
    squares = multiply_add(v, v, squares);
    products = multiply_add(c * w, v, products);
  };
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    add(load(x + i), load(weight + i), load(d + i));
  }
  int64_t rest = n - i;
  add(load_some(x + i, rest),
      load_some(weight + i, rest),
      load_some(d + i, rest));
  float count = static_cast<float>(n);
  float r = 1.0f / __builtin_sqrtf(sum_lanes(squares) / count + eps);
  Floats scale = broadcast(r);
  Floats pull = broadcast(r * r * (sum_lanes(products) / count));
  auto change = [&](Floats v, Floats w, Floats c) {
    return scale * (c * w - v * pull);
  };
  for (i = 0; i + kWidth <= n; i += kWidth) {
    store(in_x + i, change(load(x + i), load(weight + i), load(d + i)));
  }
  store_some(
      in_x + i,
      change(
          load_some(x + i, rest),
          load_some(weight + i, rest),
          load_some(d + i, rest)),
      rest);
}

// With s the sigmoid of the gate: d * gate * s in up, and in the gate
// d * up * s * (1 + gate * (1 - s)).
void swiglu_gradient(
    const float* gate,
    const float* up,
    const float* d,
    int64_t n,
    float* in_gate,
    float* in_up) {
  const Floats one = broadcast(1.0f);
  auto change = [&](auto read, auto write, int64_t i) {
    Floats g = read(gate + i);
    Floats c = read(d + i);
    Floats s = one / (one + exponential(-g));
    write(in_up + i, c * g * s);
    write(in_gate + i, c * read(up + i) * s * (one + g * (one - s)));
  };
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    change(load, store, i);
  }
  int64_t count = n - i;
  if (count > 0) {
    change(
        [&](const float* p) { return load_some(p, count); },
        [&](float* p, Floats v) { store_some(p, v, count); },
        i);
  }
}

void rotate_halves(
    const float* x,
    const float* cosines,
    const float* sines,
    int64_t half,
    float* y) {
  auto rotate = [&](auto read, auto write, int64_t i) {
    Floats a = read(x + i);
    Floats b = read(x + half + i);
    Floats c = read(cosines + i);
    Floats s = read(sines + i);
    write(y + i, a * c - b * s);
    write(y + half + i, a * s + b * c);
  };
  int64_t i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    rotate(load, store, i);
  }
  int64_t count = half - i;
  if (count > 0) {
    rotate(
        [&](const float* p) { return load_some(p, count); },
        [&](float* p, Floats v) { store_some(p, v, count); },
        i);
  }
}

// out[d] = sum of scores[j] * values[j][d] for kVectors vectors of d.
template <int kVectors>
MLXX_INLINE void
weigh_values(const AttentionRow& row, float inverse, int64_t d) {
  Floats sum[kVectors] = {};
  const float* value = row.values + d;
  for (int64_t j = 0; j < row.length; ++j, value += row.value_stride) {
    Floats weight = broadcast(row.scores[j]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = multiply_add(weight, load(value + v * kWidth), sum[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    store(row.out + d + v * kWidth, sum[v] * inverse);
  }
}

void attend(const AttentionRow& row) {
  const float* key = row.keys;
  for (int64_t j = 0; j < row.length; ++j, key += row.key_stride) {
    Floats sum = {};
    for (int64_t d = 0; d < row.size; d += kWidth) {
      sum = multiply_add(load(row.query + d), load(key + d), sum);
    }
    row.scores[j] = sum_lanes(sum) * row.scale;
  }
  // Padding takes no part: as small as the smallest, and its weight is 0.
  int64_t padded = (row.length + kWidth - 1) / kWidth * kWidth;
  for (int64_t j = row.length; j < padded; ++j) {
    row.scores[j] = row.scores[0];
  }
  if (row.softcap > 0) {
    Floats cap = broadcast(row.softcap);
    for (int64_t j = 0; j < padded; j += kWidth) {
      store(row.scores + j, softcap_lanes(load(row.scores + j), cap));
    }
  }
  if (row.added) {
    for (int64_t j = 0; j < row.length; ++j) {
      row.scores[j] += row.added[j];
    }
    for (int64_t j = row.length; j < padded; ++j) {
      row.scores[j] = row.scores[0];
    }
  }
  Floats most = load(row.scores);
  for (int64_t j = kWidth; j < padded; j += kWidth) {
    most = larger(most, load(row.scores + j));
  }
  float largest = largest_lane(most);
  if (row.sink && *row.sink > largest) {
    largest = *row.sink;
  }
  Floats shift = broadcast(largest);
  const Floats least = broadcast(-87.0f);
  for (int64_t j = 0; j < padded; j += kWidth) {
    Floats below = load(row.scores + j) - shift;
    store(row.scores + j, below < least ? Floats{} : exponential(below));
  }
  for (int64_t j = row.length; j < padded; ++j) {
    row.scores[j] = 0;
  }
  Floats total = {};
  for (int64_t j = 0; j < padded; j += kWidth) {
    total += load(row.scores + j);
  }
  float sum = sum_lanes(total);
  if (row.sink) {
    sum += exponential(broadcast(*row.sink - largest))[0];
  }
  float inverse = 1.0f / sum;
  int64_t d = 0;
  for (; d + 4 * kWidth <= row.size; d += 4 * kWidth) {
    weigh_values<4>(row, inverse, d);
  }
  for (; d < row.size; d += kWidth) {
    weigh_values<1>(row, inverse, d);
  }
}

// Calls change(vector, index) for whole vectors, and then for the last,
// partial one with the number of lanes that are there.
template <typename Change>
MLXX_INLINE void
for_each_vector(float* x, int64_t count, const Change& change) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    store(x + i, change(load(x + i), kWidth));
  }
  if (i < count) {
    Floats v = change(load_some(x + i, count - i), count - i);
    store_some(x + i, v, count - i);
  }
}

float score_target(const ScoreRow& row) {
  const Floats factor = broadcast(row.factor);
  const Floats cap = broadcast(row.softcap);
  const Floats one = broadcast(1.0f);
  float most = -3.0e38f;
  for_each_vector(row.scores, row.count, [&](Floats v, int64_t lanes) {
    v = v * factor;
    if (row.softcap != 0) {
      v = softcap_lanes(v, cap);
    }
    for (int64_t i = 0; lanes < kWidth && i < lanes; ++i) {
      most = v[i] > most ? v[i] : most;
    }
    if (lanes == kWidth) {
      float largest = largest_lane(v);
      most = largest > most ? largest : most;
    }
    return v;
  });
  const Floats above = broadcast(most);
  // Pieces, so that few terms are added in float.
  constexpr int64_t kPiece = 4096;
  double sum = 0;
  for (int64_t at = 0; at < row.count; at += kPiece) {
    int64_t n = row.count - at < kPiece ? row.count - at : kPiece;
    Floats part = {};
    const float* scores = row.scores + at;
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      part = part + exponential(load(scores + i) - above);
    }
    if (i < n) {
      Floats last = exponential(load_some(scores + i, n - i) - above);
      for (int64_t lane = 0; lane < n - i; ++lane) {
        part[lane] += last[lane];
      }
    }
    sum += static_cast<double>(sum_lanes(part));
  }
  float log_sum = most + static_cast<float>(__builtin_log(sum));
  float chosen = row.scores[row.target];
  const Floats all = broadcast(log_sum);
  for_each_vector(row.scores, row.count, [&](Floats v, int64_t) {
    Floats change = -exponential(v - all) * factor;
    if (row.softcap != 0) {
      Floats part = v / cap;
      change = change * (one - part * part);
    }
    return change;
  });
  // 1 - p of the target, without cancellation of what is stored.
  float change = row.factor;
  if (row.softcap != 0) {
    float part = chosen / row.softcap;
    change *= 1 - part * part;
  }
  row.scores[row.target] += change;
  return chosen - log_sum;
}

}  // namespace

extern const RowKernels MLXX_ROW_KERNELS;
const RowKernels MLXX_ROW_KERNELS = {
    rms_norm,
    swiglu,
    rms_norm_gradient,
    swiglu_gradient,
    rotate_halves,
    attend,
    score_target};

}  // namespace mlxx::kernels
