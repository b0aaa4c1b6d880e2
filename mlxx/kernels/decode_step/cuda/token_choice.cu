// Chooses tokens on the device. Masses are whole numbers of 2^-32 of the
// greatest, so that sums do not depend on their order; what is kept is found
// by counting into the bins of ever finer parts of a number, not by sorting.
// Noise is that of the CPU's choice (kernels/token_choice).

#include <climits>

#include "mlxx/kernels/decode_step/cuda/kernel_launch.cuh"

namespace mlxx::kernels::cuda {

namespace {

constexpr int kParts = 64;  // blocks of a row that look for the best
constexpr int kPartThreads = 256;
constexpr int kThreads = 1024;
constexpr int kBins = 256;
// Below this the draw is the greatest anyway.
constexpr float kLowestTemperature = 1e-6f;

// A row's greatest logit: where, and the sum of exp(logit - greatest), not a
// number if one of the logits is none.
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
  if (a.sum != 0) {
    r.sum += a.sum * __expf(a.value - r.value);
  }
  if (b.sum != 0) {
    r.sum += b.sum * __expf(b.value - r.value);
  }
  return r;
}

// The best of a draw: of equal ones the first.
struct Drawn {
  float value;
  int token;
};
__device__ Drawn join(const Drawn& a, const Drawn& b) {
  return b.value > a.value || (b.value == a.value && b.token < a.token) ? b : a;
}

// All threads' values joined, in a fixed order; of thread 0.
template <int kCount, typename T>
__device__ T joined(T own) {
  __shared__ T all[kCount];
  all[threadIdx.x] = own;
  __syncthreads();
  for (int s = kCount / 2; s; s >>= 1) {
    if (threadIdx.x < s) {
      all[threadIdx.x] = join(all[threadIdx.x], all[threadIdx.x + s]);
    }
    __syncthreads();
  }
  return all[0];
}

// What keep_bounds leaves of a row.
struct Kept {
  unsigned least;  // key
  int last;        // token of that key that is kept
};

struct Memory {
  Best* best;    // [rows, kParts]
  Drawn* drawn;  // [rows, kParts]
  Kept* kept;    // [rows]
};

__global__ void __launch_bounds__(kPartThreads)
    find_best(const __grid_constant__ ChoiceInput p, Best* parts) {
  let_next_start();
  wait_for_previous();
  const int row = blockIdx.y;
  const float* logits = p.logits + static_cast<size_t>(row) * p.vocabulary;
  Best best = {-INFINITY, INT_MAX, 0};
  for (int i = blockIdx.x * kPartThreads + threadIdx.x; i < p.vocabulary;
       i += kParts * kPartThreads) {
    float v = logits[i];
    if (v > -INFINITY) {
      best = join(best, {v, i, 1});
    } else if (v != v) {
      best.sum = v;
    }
  }
  best = joined<kPartThreads>(best);
  if (threadIdx.x == 0) {
    parts[row * kParts + blockIdx.x] = best;
  }
}

// Of the whole row, by at least kParts threads.
__device__ Best best_of(const Best* parts, int row) {
  Best own = {-INFINITY, INT_MAX, 0};
  if (threadIdx.x < kParts) {
    own = parts[row * kParts + threadIdx.x];
  }
  __shared__ Best all[kParts];
  if (threadIdx.x < kParts) {
    all[threadIdx.x] = own;
  }
  __syncthreads();
  for (int s = kParts / 2; s; s >>= 1) {
    if (threadIdx.x < s) {
      all[threadIdx.x] = join(all[threadIdx.x], all[threadIdx.x + s]);
    }
    __syncthreads();
  }
  return all[0];
}

__device__ bool is_usable(const Best& best) {
  return best.at != INT_MAX && isfinite(best.sum) && isfinite(best.value);
}

using Mass = unsigned long long;

// Numbers in the order of their keys; -0 is 0.
__device__ unsigned key_of(float v) {
  unsigned bits = __float_as_uint(v + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Shared {
  Mass bins[kBins];
  Mass sums[kThreads / 32];
  unsigned key;
  Mass above;
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
// (at least 1); `above`: the amount of those with greater keys. amount(v): 0
// where a number does not count.
template <typename AMOUNT>
__device__ unsigned least_key(
    const float* logits,
    int count,
    Mass wanted,
    Shared& shared,
    Mass& above,
    AMOUNT amount) {
  unsigned prefix = 0;
  above = 0;
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

__host__ __device__ bool draws(const TokenSampling& s) {
  return s.temperature > 0;
}
__host__ __device__ bool filters(const TokenSampling& s) {
  return draws(s) &&
      ((s.top_p > 0 && s.top_p < 1) || s.min_p > 0 || s.top_k > 0);
}

__global__ void __launch_bounds__(kThreads)
    keep_bounds(const __grid_constant__ ChoiceInput p, const Memory memory) {
  __shared__ Shared shared;
  let_next_start();
  wait_for_previous();
  const int row = blockIdx.x;
  const TokenSampling& s = p.sampling[row];
  Kept kept = {key_of(-INFINITY) + 1, INT_MAX};
  const float* logits = p.logits + static_cast<size_t>(row) * p.vocabulary;
  const int count = p.vocabulary;
  Best best = best_of(memory.best, row);
  if (filters(s) && is_usable(best)) {
    Mass above = 0;
    auto mass = [&](float v) {
      return static_cast<Mass>(__expf(v - best.value) * 4294967296.f);
    };
    auto one = [](float) { return Mass{1}; };
    auto keep = [&](unsigned least, int last) {
      if (least > kept.least) {
        kept = {least, last};
      }
    };
    if (s.top_p > 0 && s.top_p < 1) {
      Mass sum = 0;
      for (int i = threadIdx.x; i < count; i += kThreads) {
        sum += mass(logits[i]);
      }
      sum = sum_of_block(sum, shared);
      Mass wanted = static_cast<Mass>(ceil(static_cast<double>(sum) * s.top_p));
      wanted = max(wanted, Mass{1});
      keep(least_key(logits, count, wanted, shared, above, mass), INT_MAX);
    }
    if (s.min_p > 0) {
      unsigned least =
          key_of(fminf(best.value + logf(fminf(s.min_p, 1.f)), best.value));
      if (s.min_tokens_to_keep > 1) {
        Mass spared = min(s.min_tokens_to_keep, count);
        least =
            min(least, least_key(logits, count, spared, shared, above, one));
      }
      keep(least, INT_MAX);
    }
    if (s.top_k > 0 && s.top_k < count) {
      unsigned least = least_key(logits, count, s.top_k, shared, above, one);
      // Of those that equal the last one, the first ones are kept.
      int left = s.top_k - static_cast<int>(above);
      int last = INT_MAX;
      const int lane = threadIdx.x & 31;
      for (int i = 0; i < count && left > 0; i += 32) {
        bool equal = i + lane < count && key_of(logits[i + lane]) == least;
        unsigned equals = __ballot_sync(~0u, equal);
        while (equals && left > 0) {
          last = i + __ffs(equals) - 1;
          equals &= equals - 1;
          left--;
        }
      }
      keep(least, last);
    }
  }
  if (threadIdx.x == 0) {
    memory.kept[row] = kept;
  }
}

// Threefry2x32 (https://github.com/google/jax, JEP 263).
__device__ void mix(unsigned& a, unsigned& b, int bits) {
  a += b;
  b = __funnelshift_l(b, b, bits) ^ a;
}
__device__ uint2 random_pair(const uint32_t* key, unsigned a, unsigned b) {
  const unsigned keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
  a += keys[0];
  b += keys[1];
#pragma unroll
  for (unsigned round = 0; round < 5; round++) {
    const bool odd = round % 2;
    mix(a, b, odd ? 17 : 13);
    mix(a, b, odd ? 29 : 15);
    mix(a, b, odd ? 16 : 26);
    mix(a, b, odd ? 24 : 6);
    a += keys[(round + 1) % 3];
    b += keys[(round + 2) % 3] + round + 1;
  }
  return {a, b};
}

// Of a Gumbel distribution. A uniform 0 would remove its token, which may be
// the only one.
__device__ float noise_of(unsigned bits) {
  float uniform = fminf(static_cast<float>(bits) * 0x1p-32f, 1 - 0x1p-24f);
  return -logf(-logf(fmaxf(uniform, 0x1p-33f)));
}

__global__ void __launch_bounds__(kPartThreads)
    draw_parts(const __grid_constant__ ChoiceInput p, const Memory memory) {
  let_next_start();
  wait_for_previous();
  const int row = blockIdx.y;
  const TokenSampling& s = p.sampling[row];
  if (!draws(s)) {
    return;
  }
  const float* logits = p.logits + static_cast<size_t>(row) * p.vocabulary;
  const Best best = best_of(memory.best, row);
  const float amount = best.value + logf(best.sum);
  const float top = best.value - amount;
  const float temperature = fmaxf(s.temperature, kLowestTemperature);
  const Kept kept =
      filters(s) ? memory.kept[row] : Kept{key_of(-INFINITY) + 1, INT_MAX};
  auto is_kept = [&](int token, float v) {
    unsigned key = key_of(v);
    return key > kept.least || (key == kept.least && token <= kept.last);
  };
  Drawn drawn = {-INFINITY, INT_MAX};
  auto offer = [&](int token, float v, unsigned bits) {
    drawn = join(
        drawn,
        Drawn{(v - amount - top) / temperature + noise_of(bits), token});
  };
  // Of an odd number of tokens the middle one has a pair of its own.
  const int half = p.vocabulary / 2;
  const int apart = half + p.vocabulary % 2;
  for (int i = blockIdx.x * kPartThreads + threadIdx.x; i < apart;
       i += kParts * kPartThreads) {
    const int second = i + apart;
    const bool has_second = second < p.vocabulary;
    const float a = logits[i];
    const float b = has_second ? logits[second] : -INFINITY;
    const bool keeps_a = is_kept(i, a);
    const bool keeps_b = has_second && is_kept(second, b);
    if (keeps_a || keeps_b) {
      uint2 bits = random_pair(s.key, i, has_second ? second : 0);
      if (keeps_a) {
        offer(i, a, bits.x);
      }
      if (keeps_b) {
        offer(second, b, bits.y);
      }
    }
  }
  drawn = joined<kPartThreads>(drawn);
  if (threadIdx.x == 0) {
    memory.drawn[row * kParts + blockIdx.x] = drawn;
  }
}

__global__ void __launch_bounds__(kParts)
    give_tokens(const __grid_constant__ ChoiceInput p, const Memory memory) {
  let_next_start();
  wait_for_previous();
  const int row = blockIdx.x;
  const TokenSampling& s = p.sampling[row];
  const Best best = best_of(memory.best, row);
  int token = best.at;
  if (draws(s) && is_usable(best)) {
    token = joined<kParts>(memory.drawn[row * kParts + threadIdx.x]).token;
  }
  if (threadIdx.x == 0) {
    // None is better than another where none is a number.
    token = token < p.vocabulary ? token : 0;
    const float v = p.logits[static_cast<size_t>(row) * p.vocabulary + token];
    p.tokens[row] = token;
    const float logprob = v - best.value - logf(best.sum);
    if (p.logprobs) {
      p.logprobs[row] = logprob;
    }
    if (p.check) {
      p.check[row] = is_usable(best) ? logprob : NAN;
    }
    if (p.lengths) {
      p.lengths[row] += 1;
    }
  }
}

size_t padded(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

size_t choice_workspace_bytes(int rows, int) {
  const size_t parts = static_cast<size_t>(rows) * kParts;
  return padded(parts * sizeof(Best)) + padded(parts * sizeof(Drawn)) +
      padded(rows * sizeof(Kept));
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
  if (status != cudaSuccess) {
    return status;
  }
  if (input.rows < 1 || input.rows > kMaxRows || input.vocabulary < 1) {
    return cudaErrorInvalidValue;
  }
  const bool early = major >= 9;
  const size_t parts = static_cast<size_t>(input.rows) * kParts;
  char* at = static_cast<char*>(workspace);
  Memory memory;
  memory.best = reinterpret_cast<Best*>(at);
  at += padded(parts * sizeof(Best));
  memory.drawn = reinterpret_cast<Drawn*>(at);
  at += padded(parts * sizeof(Drawn));
  memory.kept = reinterpret_cast<Kept*>(at);
  bool any_draws = false;
  bool any_filters = false;
  for (int row = 0; row < input.rows; row++) {
    any_draws |= draws(input.sampling[row]);
    any_filters |= filters(input.sampling[row]);
  }
  const LaunchShape shape =
      {dim3(kParts, input.rows), kPartThreads, 0, 1, early};
  status = launch(find_best, shape, stream, input, memory.best);
  if (status == cudaSuccess && any_filters) {
    status = launch(
        keep_bounds,
        {dim3(input.rows), kThreads, 0, 1, early},
        stream,
        input,
        memory);
  }
  if (status == cudaSuccess && any_draws) {
    status = launch(draw_parts, shape, stream, input, memory);
  }
  if (status == cudaSuccess) {
    status = launch(
        give_tokens,
        {dim3(input.rows), kParts, 0, 1, early},
        stream,
        input,
        memory);
  }
  return status;
}

}  // namespace mlxx::kernels::cuda
