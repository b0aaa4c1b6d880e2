// Compiled once per instruction set, with MLXX_RECURRENT_KERNELS naming the
// table of that variant.
#include "mlxx/kernels/recurrent_kernels.h"
#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

// kVectors vectors of neighbouring lanes; if they are not whole, the first
// `count` lanes of one vector.
template <int kVectors, bool kWhole>
struct Lanes {
  int64_t first;
  int64_t count;

  Floats read(const float* p, int v) const {
    if constexpr (kWhole) {
      return load(p + first + v * kWidth);
    } else {
      return load_some(p + first, count);
    }
  }
  void write(float* p, int v, Floats value) const {
    if constexpr (kWhole) {
      store(p + first + v * kWidth, value);
    } else {
      store_some(p + first, value, count);
    }
  }
};

// Calls work(Lanes) until all of `lanes` are done.
template <typename Work>
MLXX_INLINE void for_lanes(int64_t lanes, const Work& work) {
  int64_t i = 0;
  for (; i + 4 * kWidth <= lanes; i += 4 * kWidth) {
    work(Lanes<4, true>{i, 4 * kWidth});
  }
  for (; i + kWidth <= lanes; i += kWidth) {
    work(Lanes<1, true>{i, kWidth});
  }
  if (i < lanes) {
    work(Lanes<1, false>{i, lanes - i});
  }
}

template <int kVectors, bool kWhole>
MLXX_INLINE void write_zeros(float* out, const Lanes<kVectors, kWhole>& lanes) {
  for (int v = 0; v < kVectors; ++v) {
    lanes.write(out, v, Floats{});
  }
}

// Even and odd keys are added up apart: two chains that do not wait for each
// other.
template <int kVectors, bool kWhole>
MLXX_INLINE void delta_lanes(
    const DeltaTask& task,
    const Lanes<kVectors, kWhole>& lanes) {
  for (int64_t t = 0; t < task.tokens; ++t) {
    float* out = task.out + t * task.value_stride;
    if (task.mask && !task.mask[t]) {
      write_zeros(out, lanes);
      continue;
    }
    const float* q = task.queries + t * task.key_stride;
    const float* k = task.keys + t * task.key_stride;
    const float* decay = task.decays + t * task.decay_stride;
    Floats sum[2][kVectors] = {};
    auto recall = [&](int64_t i, Floats* into) {
      Floats weight = broadcast(k[i] * decay[i * task.decay_step]);
      const float* row = task.state + i * task.state_stride;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        into[v] = multiply_add(weight, lanes.read(row, v), into[v]);
      }
    };
    int64_t i = 0;
    for (; i + 2 <= task.key_size; i += 2) {
      recall(i, sum[0]);
      recall(i + 1, sum[1]);
    }
    if (i < task.key_size) {
      recall(i, sum[0]);
    }
    Floats delta[kVectors];
    Floats beta = broadcast(task.betas[t * task.beta_stride]);
    const float* value = task.values + t * task.value_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      delta[v] = (lanes.read(value, v) - (sum[0][v] + sum[1][v])) * beta;
      sum[0][v] = Floats{};
      sum[1][v] = Floats{};
    }
    auto update = [&](int64_t i, Floats* into) {
      Floats key = broadcast(k[i]);
      Floats query = broadcast(q[i]);
      Floats keep = broadcast(decay[i * task.decay_step]);
      float* row = task.state + i * task.state_stride;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Floats s = multiply_add(key, delta[v], lanes.read(row, v) * keep);
        lanes.write(row, v, s);
        into[v] = multiply_add(query, s, into[v]);
      }
    };
    for (i = 0; i + 2 <= task.key_size; i += 2) {
      update(i, sum[0]);
      update(i + 1, sum[1]);
    }
    if (i < task.key_size) {
      update(i, sum[0]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      lanes.write(out, v, sum[0][v] + sum[1][v]);
    }
  }
}

template <int kVectors, bool kWhole>
MLXX_INLINE void scan_lanes(
    const ScanTask& task,
    const Lanes<kVectors, kWhole>& lanes) {
  for (int64_t t = 0; t < task.tokens; ++t) {
    float* out = task.out + t * task.x_stride;
    if (task.mask && !task.mask[t]) {
      write_zeros(out, lanes);
      continue;
    }
    const float* x = task.x + t * task.x_stride;
    const float* b = task.inputs + t * task.group_stride;
    const float* c = task.reads + t * task.group_stride;
    Floats keep = broadcast(task.decays[t * task.step_stride]);
    Floats step = broadcast(task.steps[t * task.step_stride]);
    Floats add[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      add[v] = lanes.read(x, v) * step;
    }
    Floats sum[2][kVectors] = {};
    auto update = [&](int64_t i, Floats* into) {
      Floats in = broadcast(b[i]);
      Floats read = broadcast(c[i]);
      float* row = task.state + i * task.state_stride;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Floats s = multiply_add(in, add[v], lanes.read(row, v) * keep);
        lanes.write(row, v, s);
        into[v] = multiply_add(read, s, into[v]);
      }
    };
    int64_t i = 0;
    for (; i + 2 <= task.size; i += 2) {
      update(i, sum[0]);
      update(i + 1, sum[1]);
    }
    if (i < task.size) {
      update(i, sum[0]);
    }
    Floats skip = broadcast(task.skip);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Floats y = sum[0][v] + sum[1][v];
      lanes.write(out, v, multiply_add(skip, lanes.read(x, v), y));
    }
  }
}

template <int kVectors, bool kWhole>
MLXX_INLINE void conv_lanes(
    const ConvTask& task,
    const Lanes<kVectors, kWhole>& lanes) {
  const Floats one = broadcast(1.0f);
  for (int64_t t = 0; t < task.tokens; ++t) {
    Floats sum[kVectors] = {};
    for (int64_t j = 0; j < task.width; ++j) {
      int64_t at = t + j - (task.width - 1);
      const float* in = at < 0
          ? task.state + (at + task.width - 1) * task.stride
          : task.x + at * task.x_stride;
      const float* weight = task.weights + j * task.weight_stride;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[v] = multiply_add(lanes.read(weight, v), lanes.read(in, v), sum[v]);
      }
    }
    float* out = task.out + t * task.out_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Floats y = sum[v];
      if (task.bias) {
        y += lanes.read(task.bias, v);
      }
      if (task.silu) {
        y = y / (one + exponential(-y));
      }
      lanes.write(out, v, y);
    }
  }
}

void gated_delta(const DeltaTask& task) {
  for_lanes(task.lanes, [&](const auto& lanes) { delta_lanes(task, lanes); });
}

void scan(const ScanTask& task) {
  for_lanes(task.lanes, [&](const auto& lanes) { scan_lanes(task, lanes); });
}

void short_conv(const ConvTask& task) {
  for_lanes(task.channels, [&](const auto& lanes) { conv_lanes(task, lanes); });
}

}  // namespace

extern const RecurrentKernels MLXX_RECURRENT_KERNELS;
const RecurrentKernels MLXX_RECURRENT_KERNELS = {gated_delta, scan, short_conv};

}  // namespace mlxx::kernels
