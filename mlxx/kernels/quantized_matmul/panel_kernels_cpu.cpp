// Compiled once per instruction set, with MLXX_PANEL_KERNELS naming the table
// of that variant.
#include "mlxx/kernels/quantized_matmul/panel_kernels.h"
#include "mlxx/kernels/quantized_matmul/panel_numbers.h"
#include "mlxx/kernels/quantized_matmul/row_tiles.h"
#include "mlxx/kernels/vector_math.h"

namespace mlxx::kernels {
namespace {

template <int kBits, Codes kCodes = Codes::integers>
void one_row_of(
    const PanelLayout& layout,
    const std::byte* panel,
    const float* x,
    const float* sums,
    float* y) {
  int64_t chunks = layout.chunks();
  int per_group = layout.chunks_per_group();
  size_t step = layout.group_bytes() / per_group;
  Floats total[kVectors] = {};
  const std::byte* at = panel;
  for (int64_t chunk = 0; chunk < chunks;) {
    Floats scales[kVectors];
    Floats biases[kVectors];
    load_scales(layout, at, scales, biases);
    Floats later[kVectors];  // scales of second halves
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      later[v] = kCodes == Codes::e2m1
          ? load_number(second_scales(layout, at), layout.type, v)
          : scales[v];
    }
    at += layout.header_bytes();
    for (int64_t end = chunk + per_group; chunk < end; ++chunk) {
      const auto* words = reinterpret_cast<const uint32_t*>(at);
      const float* in = x + chunk * kChunk;
      at += layout.chunk_bytes();
      fetch(at + kAhead, step);
      Floats first[kVectors] = {};
      Floats second[kVectors] = {};
#pragma GCC unroll 16
      for (int i = 0; i < kHalf; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          first[v] = multiply_add(
              quantized_number<kBits, kCodes>(words, i, v),
              broadcast(in[i]),
              first[v]);
          second[v] = multiply_add(
              quantized_number<kBits, kCodes>(words, i + kHalf, v),
              broadcast(in[i + kHalf]),
              second[v]);
        }
      }
      Floats sum = broadcast(sums[chunk]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        Floats t = multiply_add(first[v], scales[v], total[v]);
        t = multiply_add(second[v], later[v], t);
        total[v] = multiply_add(biases[v], sum, t);
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    store(y + v * kWidth, total[v]);
  }
}

void one_row(
    const PanelLayout& layout,
    const std::byte* panel,
    const float* x,
    const float* sums,
    float* y) {
  if (layout.codes == Codes::e2m1) {
    return one_row_of<4, Codes::e2m1>(layout, panel, x, sums, y);
  }
  if (layout.codes == Codes::e4m3) {
    return one_row_of<8, Codes::e4m3>(layout, panel, x, sums, y);
  }
  switch (layout.bits) {
    case 2:
      return one_row_of<2>(layout, panel, x, sums, y);
    case 3:
      return one_row_of<3>(layout, panel, x, sums, y);
    case 4:
      return one_row_of<4>(layout, panel, x, sums, y);
    case 5:
      return one_row_of<5>(layout, panel, x, sums, y);
    case 6:
      return one_row_of<6>(layout, panel, x, sums, y);
    case 8:
      return one_row_of<8>(layout, panel, x, sums, y);
  }
}

template <int kBits, Codes kCodes = Codes::integers>
void unpack_chunk(const uint32_t* words, float* q) {
#pragma GCC unroll 32
  for (int i = 0; i < kChunk; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      store(
          q + i * kLanes + v * kWidth,
          quantized_number<kBits, kCodes>(words, i, v));
    }
  }
}

void unpack_dense(
    const PanelLayout& layout,
    const std::byte* panel,
    int64_t from,
    int64_t to,
    float* q,
    float* scales,
    float* biases) {
  for (int64_t at = from * kChunk; at < to * kChunk; at += 2) {
    for (int v = 0; v < kVectors; ++v) {
      Floats pair[2];
      if (layout.type == NumberType::bfloat16) {
        load_pair<NumberType::bfloat16>(panel, at, v, pair);
      } else if (layout.type == NumberType::float16) {
        load_pair<NumberType::float16>(panel, at, v, pair);
      } else {
        load_pair<NumberType::float32>(panel, at, v, pair);
      }
      store(q + v * kWidth, pair[0]);
      store(q + kLanes + v * kWidth, pair[1]);
    }
    q += 2 * kLanes;
  }
  for (int64_t i = 0; i < (to - from) * kLanes; ++i) {
    scales[2 * i] = 1;
    scales[2 * i + 1] = 1;
    biases[i] = 0;
  }
}

void unpack(
    const PanelLayout& layout,
    const std::byte* panel,
    int64_t from,
    int64_t to,
    float* q,
    float* scales,
    float* biases) {
  if (layout.is_dense()) {
    return unpack_dense(layout, panel, from, to, q, scales, biases);
  }
  for (int64_t chunk = from; chunk < to; ++chunk) {
    store_scales(layout, panel, chunk, scales, biases);
    const uint32_t* words = chunk_words(layout, panel, chunk);
    switch (layout.bits) {
      case 2:
        unpack_chunk<2>(words, q);
        break;
      case 3:
        unpack_chunk<3>(words, q);
        break;
      case 4:
        if (layout.codes == Codes::e2m1) {
          unpack_chunk<4, Codes::e2m1>(words, q);
        } else {
          unpack_chunk<4>(words, q);
        }
        break;
      case 5:
        unpack_chunk<5>(words, q);
        break;
      case 6:
        unpack_chunk<6>(words, q);
        break;
      case 8:
        if (layout.codes == Codes::e4m3) {
          unpack_chunk<8, Codes::e4m3>(words, q);
        } else {
          unpack_chunk<8>(words, q);
        }
        break;
    }
    q += kChunk * kLanes;
    scales += 2 * kLanes;
    biases += kLanes;
  }
}

struct ManyRows {
  const float* q;
  const float* scales;
  const float* biases;
  int64_t chunks;
  const float* x;
  int64_t ldx;
  const float* sums;
  int64_t lds;
  bool first;
  float* y;
  int64_t ldy;
};

// Rows row .. row + kRows of lanes lane .. lane + kTileLanes.
template <int kRows>
MLXX_INLINE void tile(const ManyRows& job, int64_t row, int lane) {
  Floats total[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const float* y = job.y + (row + r) * job.ldy + lane;
    total[r][0] = job.first ? Floats{} : load(y);
    total[r][1] = job.first ? Floats{} : load(y + kWidth);
  }
  for (int64_t chunk = 0; chunk < job.chunks; ++chunk) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const float* scales = job.scales + (2 * chunk + half) * kLanes + lane;
      Floats s0 = load(scales);
      Floats s1 = load(scales + kWidth);
      const float* q = job.q + (chunk * kChunk + half * kHalf) * kLanes + lane;
      const float* x = job.x + row * job.ldx + chunk * kChunk + half * kHalf;
      Floats sum[kRows][2] = {};
#pragma GCC unroll 4
      for (int i = 0; i < kHalf; ++i) {
        Floats w0 = load(q + i * kLanes);
        Floats w1 = load(q + i * kLanes + kWidth);
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          Floats in = broadcast(x[r * job.ldx + i]);
          sum[r][0] = multiply_add(w0, in, sum[r][0]);
          sum[r][1] = multiply_add(w1, in, sum[r][1]);
        }
      }
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        total[r][0] = multiply_add(sum[r][0], s0, total[r][0]);
        total[r][1] = multiply_add(sum[r][1], s1, total[r][1]);
      }
    }
    Floats b0 = load(job.biases + chunk * kLanes + lane);
    Floats b1 = load(job.biases + chunk * kLanes + lane + kWidth);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      Floats sum = broadcast(job.sums[(row + r) * job.lds + chunk]);
      total[r][0] = multiply_add(b0, sum, total[r][0]);
      total[r][1] = multiply_add(b1, sum, total[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    float* y = job.y + (row + r) * job.ldy + lane;
    store(y, total[r][0]);
    store(y + kWidth, total[r][1]);
  }
}

void many_rows(
    const float* q,
    const float* scales,
    const float* biases,
    int64_t chunks,
    const float* x,
    int64_t ldx,
    const float* sums,
    int64_t lds,
    int64_t rows,
    bool first,
    float* y,
    int64_t ldy) {
  ManyRows job{q, scales, biases, chunks, x, ldx, sums, lds, first, y, ldy};
  for_each_tile(rows, [&](auto count, int64_t row) {
    for (int lane = 0; lane < kLanes; lane += kTileLanes) {
      tile<decltype(count)::kRows>(job, row, lane);
    }
  });
}

void chunk_sums(const float* x, int64_t chunks, float* sums) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    Floats part = {};
    for (int i = 0; i < kChunk; i += kWidth) {
      part += load(x + chunk * kChunk + i);
    }
    sums[chunk] = sum_lanes(part);
  }
}

}  // namespace

extern const PanelKernels MLXX_PANEL_KERNELS;
const PanelKernels MLXX_PANEL_KERNELS = {
    chunk_sums,
    one_row,
    unpack,
    many_rows};

}  // namespace mlxx::kernels
