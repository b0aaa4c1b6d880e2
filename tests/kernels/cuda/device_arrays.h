#pragma once

// Arrays on the device, matrices in MLX's forms with random contents, and what
// they are in float. No MLX, no GTest: nvcc alone builds these programs.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "mlxx/kernels/decode_step/cuda/decoder_cuda.h"

namespace mlxx::kernels::cuda {

inline void require(int status, const char* what) {
  if (status != cudaSuccess) {
    std::printf(
        "FAIL %s: %s\n",
        what,
        cudaGetErrorString(static_cast<cudaError_t>(status)));
    std::exit(1);
  }
}

class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return state_ * 2246822519u;
  }
  float uniform() {  // -1 to 1
    return (bits() >> 8) / 8388608.f - 1.f;
  }

 private:
  uint32_t state_;
};

// What makes and frees device memory.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    for (void* p : pointers_) {
      cudaFree(p);
    }
  }
  void* bytes(size_t count) {
    void* p = nullptr;
    require(cudaMalloc(&p, count ? count : 16), "cudaMalloc");
    require(cudaMemset(p, 0, count ? count : 16), "cudaMemset");
    pointers_.push_back(p);
    return p;
  }
  template <typename T>
  T* make(size_t count) {
    return static_cast<T*>(bytes(count * sizeof(T)));
  }
  template <typename T>
  T* upload(const std::vector<T>& host) {
    T* p = make<T>(host.size());
    require(
        cudaMemcpy(
            p,
            host.data(),
            host.size() * sizeof(T),
            cudaMemcpyHostToDevice),
        "upload");
    return p;
  }

 private:
  std::vector<void*> pointers_;
};

template <typename T>
std::vector<T> download(const T* p, size_t count) {
  std::vector<T> host(count);
  require(
      cudaMemcpy(host.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost),
      "download");
  return host;
}

inline float rounded(float v) {
  return __bfloat162float(__float2bfloat16(v));
}
inline uint16_t bfloat16_bits(float v) {
  __nv_bfloat16 b = __float2bfloat16(v);
  uint16_t bits;
  memcpy(&bits, &b, 2);
  return bits;
}

inline const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::bfloat16:
      return "bfloat16";
    case WeightFormat::affine4:
      return "affine4";
    case WeightFormat::affine8:
      return "affine8";
    case WeightFormat::mxfp4:
      return "mxfp4";
    default:
      return "nvfp4";
  }
}

// A random matrix as MLX keeps it, and its numbers.
struct HostMatrix {
  MlxMatrix shape;
  std::vector<uint32_t> weight;
  std::vector<uint16_t> scales16;
  std::vector<uint16_t> biases16;
  std::vector<uint8_t> scales8;
  std::vector<float> values;  // [rows, columns]

  HostMatrix(
      WeightFormat format,
      int group,
      int rows,
      int columns,
      uint32_t seed) {
    shape.rows = rows;
    shape.columns = columns;
    shape.format = format;
    shape.group = group;
    Random random(seed);
    const bool affine =
        format == WeightFormat::affine4 || format == WeightFormat::affine8;
    const int bits = format == WeightFormat::bfloat16 ? 16
        : format == WeightFormat::affine8             ? 8
                                                      : 4;
    values.resize(static_cast<size_t>(rows) * columns);
    weight.resize(values.size() * bits / 32);
    const float size = 1.f / std::sqrt(static_cast<float>(columns));
    if (bits == 16) {
      for (size_t i = 0; i < values.size(); i++) {
        values[i] = rounded(random.uniform() * size * 1.7f);
        weight[i / 2] |= static_cast<uint32_t>(bfloat16_bits(values[i]))
            << (16 * (i % 2));
      }
      return;
    }
    for (uint32_t& w : weight) {
      w = random.bits();
    }
    const size_t groups = values.size() / group;
    const float step = size * 3.f / (1 << bits);
    for (size_t i = 0; i < groups; i++) {
      if (affine) {
        float scale = rounded(step * (1.3f + 0.5f * random.uniform()));
        scales16.push_back(bfloat16_bits(scale));
        biases16.push_back(bfloat16_bits(
            -scale * ((1 << bits) - 1) / 2.f * (1 + 0.1f * random.uniform())));
      } else if (format == WeightFormat::mxfp4) {
        int exponent = 127 + static_cast<int>(std::log2(size * 0.15f)) +
            static_cast<int>(random.bits() % 3);
        // Some that only the smallest and the greatest exponents reach.
        scales8.push_back(static_cast<uint8_t>(i % 97 == 5 ? 0 : exponent));
      } else {
        scales8.push_back(static_cast<uint8_t>(random.bits() % 24));
      }
    }
    for (size_t i = 0; i < values.size(); i++) {
      size_t at = i * bits;
      int code = weight[at / 32] >> (at % 32) & ((1 << bits) - 1);
      size_t g = i / group;
      if (affine) {
        values[i] = from_bits(scales16[g]) * code + from_bits(biases16[g]);
        continue;
      }
      const float steps[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
      float v = code & 8 ? -steps[code & 7] : steps[code & 7];
      int byte = scales8[g];
      if (format == WeightFormat::mxfp4) {
        values[i] = std::ldexp(v, byte - 127);
      } else {
        float scale = byte < 8 ? std::ldexp(static_cast<float>(byte), -9)
                               : std::ldexp(1 + byte % 8 / 8.f, byte / 8 - 7);
        values[i] = v * scale;
      }
    }
  }
  static float from_bits(uint16_t bits) {
    uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float v;
    memcpy(&v, &wide, 4);
    return v;
  }
  MlxMatrix on_device(Pool& pool) const {
    MlxMatrix m = shape;
    m.weight = pool.upload(weight);
    if (!scales16.empty()) {
      m.scales = pool.upload(scales16);
      m.biases = pool.upload(biases16);
    } else if (!scales8.empty()) {
      m.scales = pool.upload(scales8);
    }
    return m;
  }
};

inline PackedMatrix
make_packed(Pool& pool, WeightFormat format, int group, int rows, int columns) {
  PackedMatrix m;
  m.rows = rows;
  m.columns = columns;
  m.format = format;
  m.group = group;
  PackedSize size = packed_size(m);
  if (size.codes == 0) {
    std::printf("FAIL no packed form of %s\n", name_of(format));
    std::exit(1);
  }
  m.codes = pool.bytes(size.codes);
  m.scales = size.scales ? pool.bytes(size.scales) : nullptr;
  // Whatever was there must not matter.
  require(cudaMemset(m.codes, 0x5a, size.codes), "cudaMemset");
  if (m.scales) {
    require(cudaMemset(m.scales, 0x7f, size.scales), "cudaMemset");
  }
  return m;
}

template <typename GOT>
double relative_error(const GOT& got, const std::vector<float>& want) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < want.size(); i++) {
    double d = got[i] - static_cast<double>(want[i]);
    error += d * d;
    norm += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(error / (norm > 0 ? norm : 1));
}

}  // namespace mlxx::kernels::cuda
