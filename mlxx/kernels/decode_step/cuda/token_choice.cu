// Chooses tokens on the device. Probabilities are whole numbers of 2^-32 of the
// greatest, so that sums do not depend on their order; what is kept is found
// by counting into the bins of ever finer parts of a number, not by sorting.

#include "mlxx/kernels/decode_step/cuda/kernel_launch.cuh"

namespace mlxx::kernels::cuda {

namespace {

constexpr int kParts = 64;  // blocks of a row that look for the greatest
constexpr int kPartThreads = 256;
constexpr int kThreads = 1024;
constexpr int kBins = 256;

// A row's best logit: where, and the sum of exp(logit - best).
struct Best {
  float value;
  int at;
  float sum;
};

__device__ bool is_better(const Best& a, const Best& b) {
  return a.value > b.value || (a.value == b.value && a.at < b.at);
}
__device__ Best join(const Best& a, const Best& b) {
  Best r = is_better(b, a) ? b : a;
  r.sum = 0;
  if (a.sum > 0) {
    r.sum += a.sum * __expf(a.value - r.value);
  }
  if (b.sum > 0) {
    r.sum += b.sum * __expf(b.value - r.value);
  }
  return r;
}

__global__ void __launch_bounds__(kPartThreads)
    find_best(const __grid_constant__ ChoiceInput p, Best* parts) {
  let_next_start();
  wait_for_previous();
  const int row = blockIdx.y;
  const float* logits = p.logits + static_cast<size_t>(row) * p.vocabulary;
  Best best = {-INFINITY, 0x7fffffff, 0};
  for (int i = blockIdx.x * kPartThreads + threadIdx.x; i < p.vocabulary;
       i += kParts * kPartThreads) {
    float v = logits[i];
    if (v > -INFINITY) {
      best = join(best, {v, i, 1});
    }
  }
  __shared__ Best all[kPartThreads];
  all[threadIdx.x] = best;
  __syncthreads();
  for (int s = kPartThreads / 2; s; s >>= 1) {
    if (threadIdx.x < s) {
      all[threadIdx.x] = join(all[threadIdx.x], all[threadIdx.x + s]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    parts[row * kParts + blockIdx.x] = all[0];
  }
}

using Mass = unsigned long long;

// Numbers in the order of their keys.
__device__ unsigned key_of(float v) {
  unsigned bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Shared {
  Mass bins[kBins];
  Mass sums[kThreads / 32];
  unsigned key;
  Mass above;
  int token;
};

__device__ Mass sum_of_block(Mass v, Shared& shared) {
  for (int s = 16; s; s >>= 1) {
    v += __shfl_xor_sync(~0u, v, s);
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) {
    shared.sums[threadIdx.x >> 5] = v;
  }
  __syncthreads();
  Mass sum = 0;
  for (int i = 0; i < kThreads / 32; i++) {
    sum += shared.sums[i];
  }
  return sum;
}

// The least key of the fewest greatest numbers whose amounts reach `wanted`
// (at least 1). amount(v): 0 where a number does not count.
template <typename AMOUNT>
__device__ unsigned least_key(
    const float* logits,
    int count,
    Mass wanted,
    Shared& shared,
    AMOUNT amount) {
  unsigned prefix = 0;
  Mass above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kBins; i += kThreads) {
      shared.bins[i] = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kThreads) {
      unsigned key = key_of(logits[i]);
      if (shift == 24 || key >> (shift + 8) == prefix) {
        Mass n = amount(logits[i]);
        if (n) {
          atomicAdd(&shared.bins[key >> shift & (kBins - 1)], n);
        }
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = kBins - 1;
      int least = kBins;
      for (; bin >= 0; bin--) {
        if (shared.bins[bin] == 0) {
          continue;
        }
        least = bin;
        if (above + shared.bins[bin] >= wanted) {
          break;
        }
        above += shared.bins[bin];
      }
      if (bin < 0) {
        // All of them do not reach it: the last bin that has any.
        bin = least < kBins ? least : 0;
        above -= least < kBins ? shared.bins[least] : 0;
      }
      shared.key = prefix << 8 | bin;
      shared.above = above;
    }
    __syncthreads();
    prefix = shared.key;
    above = shared.above;
    __syncthreads();
  }
  return prefix;
}

__global__ void __launch_bounds__(kThreads)
    choose(const __grid_constant__ ChoiceInput p, const Best* parts) {
  __shared__ Shared shared;
  let_next_start();
  wait_for_previous();
  const int row = blockIdx.x;
  const float* logits = p.logits + static_cast<size_t>(row) * p.vocabulary;
  Best best = parts[row * kParts];
  for (int i = 1; i < kParts; i++) {
    best = join(best, parts[row * kParts + i]);
  }
  int token = best.at < p.vocabulary ? best.at : 0;
  const float temperature = p.temperature ? p.temperature[row] : 0.f;
  if (temperature > 0 && best.at < p.vocabulary) {
    const int count = p.vocabulary;
    const float inverse = 1.f / temperature;
    auto mass = [&](float v) {
      return static_cast<Mass>(
          __expf((v - best.value) * inverse) * 4294967296.f);
    };
    unsigned least = 0;
    const int top_k = p.top_k ? p.top_k[row] : 0;
    if (top_k > 0 && top_k < count) {
      least = least_key(logits, count, top_k, shared, [](float) {
        return Mass{1};
      });
    }
    auto kept_mass = [&](float v) {
      return key_of(v) >= least ? mass(v) : Mass{0};
    };
    auto total = [&] {
      Mass sum = 0;
      for (int i = threadIdx.x; i < count; i += kThreads) {
        sum += kept_mass(logits[i]);
      }
      return sum_of_block(sum, shared);
    };
    const float top_p = p.top_p ? p.top_p[row] : 1.f;
    if (top_p < 1) {
      double wanted = static_cast<double>(total()) * fmaxf(top_p, 0.f);
      unsigned key = least_key(
          logits,
          count,
          max(static_cast<Mass>(ceil(wanted)), Mass{1}),
          shared,
          kept_mass);
      least = max(least, key);
    }
    const float min_p = p.min_p ? p.min_p[row] : 0.f;
    if (min_p > 0) {
      float bound = best.value + temperature * __logf(fminf(min_p, 1.f));
      least = max(least, key_of(fminf(bound, best.value)));
    }
    const Mass sum = total();
    const double uniform = p.uniform ? p.uniform[row] : 0.0;
    const Mass target =
        min(static_cast<Mass>(uniform * static_cast<double>(sum)), sum - 1);
    // Warps have stretches of tokens one after another; in the one that the
    // target is in, a warp goes through it.
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int stretch = (count + kThreads - 1) / kThreads * 32;
    const int from = warp * stretch;
    const int to = min(count, from + stretch);
    Mass mine = 0;
    for (int i = from + lane; i < to; i += 32) {
      mine += kept_mass(logits[i]);
    }
    for (int s = 16; s; s >>= 1) {
      mine += __shfl_xor_sync(~0u, mine, s);
    }
    __syncthreads();
    if (lane == 0) {
      shared.sums[warp] = mine;
    }
    __syncthreads();
    Mass before = 0;
    for (int i = 0; i < warp; i++) {
      before += shared.sums[i];
    }
    if (target >= before && target < before + mine) {
      for (int i = from; i < to; i += 32) {
        Mass own = i + lane < to ? kept_mass(logits[i + lane]) : 0;
        Mass up_to = own;
        for (int s = 1; s < 32; s <<= 1) {
          Mass other = __shfl_up_sync(~0u, up_to, s);
          if (lane >= s) {
            up_to += other;
          }
        }
        unsigned hit = __ballot_sync(~0u, own > 0 && before + up_to > target);
        if (hit) {
          if (lane == 0) {
            shared.token = i + __ffs(hit) - 1;
          }
          break;
        }
        before += __shfl_sync(~0u, up_to, 31);
      }
    }
    __syncthreads();
    token = shared.token;
  }
  if (threadIdx.x == 0) {
    p.tokens[row] = token;
    if (p.logprobs) {
      p.logprobs[row] = logits[token] - best.value - logf(best.sum);
    }
    if (p.lengths) {
      p.lengths[row] += 1;
    }
  }
}

}  // namespace

size_t choice_workspace_bytes(int rows, int) {
  return (static_cast<size_t>(rows) * kParts * sizeof(Best) + 255) / 256 * 256;
}

Status launch_choice(const ChoiceInput& input, void* workspace, Stream stream) {
  int device = 0;
  int major = 0;
  Status status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(
        &major,
        cudaDevAttrComputeCapabilityMajor,
        device);
  }
  if (status != cudaSuccess || input.rows < 1 || input.vocabulary < 1) {
    return status == cudaSuccess ? Status{cudaErrorInvalidValue} : status;
  }
  const bool early = major >= 9;
  Best* parts = static_cast<Best*>(workspace);
  status = launch(
      find_best,
      {dim3(kParts, input.rows), kPartThreads, 0, 1, early},
      stream,
      input,
      parts);
  if (status != cudaSuccess) {
    return status;
  }
  return launch(
      choose,
      {dim3(input.rows), kThreads, 0, 1, early},
      stream,
      input,
      static_cast<const Best*>(parts));
}

}  // namespace mlxx::kernels::cuda
