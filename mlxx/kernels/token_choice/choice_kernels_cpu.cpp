// Compiled once per instruction set, with MLXX_CHOICE_KERNELS naming the table
// of that variant.
#include "mlxx/kernels/token_choice/choice_kernels.h"
#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

constexpr float kInfinity = __builtin_inff();

MLXX_INLINE Floats larger_number(Floats a, Floats largest) {
  return a > largest ? a : largest;
}

float block_maxima(const float* x, int64_t n, float* maxima) {
  float top = -kInfinity;
  for (int64_t from = 0; from < n; from += kChoiceBlock) {
    Floats largest = broadcast(-kInfinity);
    int64_t end = from + kChoiceBlock < n ? from + kChoiceBlock : n;
    int64_t i = from;
    for (; i + kWidth <= end; i += kWidth) {
      largest = larger_number(load(x + i), largest);
    }
    float block = largest_lane(largest);
    for (; i < end; ++i) {
      block = x[i] > block ? x[i] : block;
    }
    *maxima++ = block;
    top = block > top ? block : top;
  }
  return top;
}

float sum_of_exponentials(const float* x, int64_t n, float top) {
  const Floats most = broadcast(top);
  Floats sum = {};
  Ints is_number = (Ints)broadcast(0.0f) == 0;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Floats v = load(x + i);
    is_number &= v == v;
    sum += exponential(v - most);
  }
  float rest = 0;
  bool all_numbers = true;
  if (i < n) {
    float last[kWidth];
    Floats v = load_some(x + i, n - i);
    store(last, exponential(v - most));
    for (int64_t k = 0; k < n - i; ++k) {
      rest += last[k];
      all_numbers = all_numbers && x[i + k] == x[i + k];
    }
  }
  for (int k = 0; k < kWidth; ++k) {
    all_numbers = all_numbers && is_number[k] != 0;
  }
  return all_numbers ? sum_lanes(sum) + rest : __builtin_nanf("");
}

void exponentials(const float* x, int64_t n, float top, float* y) {
  const Floats most = broadcast(top);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    store(y + i, exponential(load(x + i) - most));
  }
  store_some(y + i, exponential(load_some(x + i, n - i) - most), n - i);
}

void weights_at_least(
    const float* x,
    const float* weights,
    int64_t n,
    const float* bounds,
    float* sums) {
  Floats least[kChoiceBounds];
  Floats sum[kChoiceBounds] = {};
#pragma GCC unroll 8
  for (int k = 0; k < kChoiceBounds; ++k) {
    least[k] = broadcast(bounds[k]);
  }
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Floats v = load(x + i);
    Floats weight = load(weights + i);
#pragma GCC unroll 8
    for (int k = 0; k < kChoiceBounds; ++k) {
      sum[k] += v >= least[k] ? weight : Floats{};
    }
  }
  for (int k = 0; k < kChoiceBounds; ++k) {
    float rest = 0;
    for (int64_t j = i; j < n; ++j) {
      rest += x[j] >= bounds[k] ? weights[j] : 0;
    }
    sums[k] = sum_lanes(sum[k]) + rest;
  }
}

// Bit k of lane k, which is 0 or -1.
MLXX_INLINE uint32_t lane_bits(Ints lanes) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)lanes);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)lanes));
#else
  uint32_t bits = 0;
  for (int k = 0; k < kWidth; ++k) {
    bits |= static_cast<uint32_t>(lanes[k] & 1) << k;
  }
  return bits;
#endif
}

uint64_t between(const float* x, int count, float low, float high) {
  const Floats least = broadcast(low);
  const Floats most = broadcast(high);
  uint64_t bits = 0;
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    Floats v = load(x + i);
    bits |= static_cast<uint64_t>(lane_bits((v >= least) & (v < most))) << i;
  }
  for (; i < count; ++i) {
    bits |= static_cast<uint64_t>(x[i] >= low && x[i] < high) << i;
  }
  return bits;
}

void drop_below(float* x, int64_t n, float bound) {
  const Floats least = broadcast(bound);
  const Floats none = broadcast(-kInfinity);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Floats v = load(x + i);
    store(x + i, v >= least ? v : none);
  }
  for (; i < n; ++i) {
    x[i] = x[i] >= bound ? x[i] : -kInfinity;
  }
}

void subtract(const float* x, int64_t n, float amount, float* y) {
  const Floats all = broadcast(amount);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    store(y + i, load(x + i) - all);
  }
  for (; i < n; ++i) {
    y[i] = x[i] - amount;
  }
}

void keep_allowed(
    const float* x,
    const uint32_t* allowed,
    int64_t n,
    float* y) {
  const Floats none = broadcast(-kInfinity);
  Words bit;
  for (int k = 0; k < kWidth; ++k) {
    bit[k] = uint32_t{1} << k;
  }
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    // kWidth divides 32: one word has the bits of all lanes.
    Words word = Words{} + (allowed[i / 32] >> (i % 32));
    store(y + i, (word & bit) != 0 ? load(x + i) : none);
  }
  for (; i < n; ++i) {
    y[i] = (allowed[i / 32] >> (i % 32)) & 1 ? x[i] : -kInfinity;
  }
}

template <int kBits>
MLXX_INLINE void mix(Words& a, Words& b) {
  a += b;
  b = (b << kBits) | (b >> (32 - kBits));
  b ^= a;
}

void random_pairs(
    RandomKey key,
    uint32_t from,
    uint32_t apart,
    uint32_t* first,
    uint32_t* second) {
  const uint32_t keys[3] = {
      key.first,
      key.second,
      key.first ^ key.second ^ 0x1BD11BDA};
  Words lane;
  for (int k = 0; k < kWidth; ++k) {
    lane[k] = static_cast<uint32_t>(k);
  }
  for (int i = 0; i < kChoiceBlock; i += kWidth) {
    Words a = lane + (from + static_cast<uint32_t>(i)) + keys[0];
    Words b = lane + (from + apart + static_cast<uint32_t>(i)) + keys[1];
#pragma GCC unroll 5
    for (uint32_t round = 0; round < 5; ++round) {
      if (round % 2 == 0) {
        mix<13>(a, b);
        mix<15>(a, b);
        mix<26>(a, b);
        mix<6>(a, b);
      } else {
        mix<17>(a, b);
        mix<29>(a, b);
        mix<16>(a, b);
        mix<24>(a, b);
      }
      a += keys[(round + 1) % 3];
      b += keys[(round + 2) % 3] + round + 1;
    }
    *reinterpret_cast<WordsAnywhere*>(first + i) = a;
    *reinterpret_cast<WordsAnywhere*>(second + i) = b;
  }
}

// The noise -log(-log(u)) of a uniform u is at most -log(1 - u). With 2^-24
// units of 1 - u in d that is (24 - log2(d)) log(2), and log2(d) is at least
// what the bits of d as a float say, read as a fixed-point number.
uint64_t contenders(const ContenderBlock& block) {
  const Floats top = broadcast(block.top);
  const Floats inverse = broadcast(1.0f / block.temperature);
  const Floats best = broadcast(block.best);
  // Spares the roundings here; the exact numbers decide later.
  const Floats slack = broadcast(0.01f + 24 * 0.693147181f);
  const Floats per_unit = broadcast(-0.693147181f / 8388608.0f);
  const Ints one = Ints{} + 1;
  uint64_t mask = 0;
  int i = 0;
  for (; i + kWidth <= block.count; i += kWidth) {
    Words bits = load_words(block.bits + i);
    Ints d = (Ints)(~bits >> 8) - one;
    d = d > one ? d : one;
    Ints fixed = (Ints)to_floats((Words)d) - (127 << 23);
    Floats bound = multiply_add(to_floats((Words)fixed), per_unit, slack);
    Floats scaled = (load(block.logprobs + i) - top) * inverse;
    mask |= static_cast<uint64_t>(lane_bits(scaled + bound >= best)) << i;
  }
  for (; i < block.count; ++i) {
    mask |= uint64_t{1} << i;
  }
  return mask;
}

}  // namespace

const ChoiceKernels MLXX_CHOICE_KERNELS = {
    block_maxima,
    sum_of_exponentials,
    exponentials,
    weights_at_least,
    between,
    subtract,
    drop_below,
    keep_allowed,
    random_pairs,
    contenders,
};

}  // namespace mlxx::kernels
