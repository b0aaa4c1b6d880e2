#include "mlxx/kernels/decode_step/cuda/step_rows.cuh"

#include "mlxx/kernels/decode_step/cuda/kernel_launch.cuh"

namespace mlxx::kernels::cuda {

namespace {

// One number of a packed matrix, as MLX dequantizes it to bfloat16.
__device__ float
number_at(const PackedMatrix& m, int tiles, int row, int column) {
  const size_t strip = row / 16;
  const int g = row % 8;
  const int row_half = row % 16 / 8;
  const int tile = column / 64;
  const int h = column / 32 % 2;
  const int lane = g * 4 + column / 8 % 4;
  const int e = column % 8;
  const size_t at = strip * tiles + tile;
  auto rounded = [](float v) { return __bfloat162float(__float2bfloat16(v)); };
  if (m.format == WeightFormat::bfloat16) {
    const bf16* codes = static_cast<const bf16*>(m.codes) + at * 1024;
    return __bfloat162float(codes[(h * 2 + row_half) * 256 + lane * 8 + e]);
  }
  const unsigned* codes = static_cast<const unsigned*>(m.codes);
  int code;
  if (m.format == WeightFormat::affine8) {
    unsigned word = codes[at * 256 + h * 128 + lane * 4 + row_half * 2 + e / 4];
    code = word >> (8 * (e % 4 / 2 + e % 2 * 2)) & 0xff;
  } else {
    unsigned word = codes[at * 128 + lane * 4 + row_half * 2 + h];
    code = word >> (4 * (e / 2 + e % 2 * 4)) & 0xf;
  }
  if (m.format == WeightFormat::affine4 || m.format == WeightFormat::affine8) {
    size_t group = m.group == 32 ? at * 2 + h : m.group == 64 ? at : at / 2;
    const bf16* scale =
        static_cast<const bf16*>(m.scales) + (group * 8 + g) * 4 + row_half * 2;
    return rounded(
        __bfloat162float(scale[0]) * code + __bfloat162float(scale[1]));
  }
  const float steps[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  float v = code & 8 ? -steps[code & 7] : steps[code & 7];
  const unsigned char* scales = static_cast<const unsigned char*>(m.scales);
  if (m.format == WeightFormat::mxfp4) {
    int exponent = scales[(at * 8 + g) * 4 + row_half * 2 + h];
    return v * exp2f(static_cast<float>(exponent) - 127.f);
  }
  int byte = scales[(at * 8 + g) * 8 + row_half * 4 + column / 16 % 4] & 0x7f;
  float scale = byte < 8
      ? byte * exp2f(-9)
      : (1 + byte % 8 / 8.f) * exp2f(static_cast<float>(byte / 8 - 7));
  return v * scale;
}

constexpr int kEmbedThreads = 256;

__global__ void __launch_bounds__(kEmbedThreads)
    embed_rows(const __grid_constant__ Embed p) {
  // Only now may the next ones start: what they read before they wait is of
  // earlier steps.
  wait_for_previous();
  let_next_start();
  const int row = blockIdx.y;
  if (blockIdx.x == 0) {
    int at = row * p.turns_stride;
    for (int i = 0; i < p.rotation_count; i++) {
      const RotationTable& table = p.rotations[i];
      for (int k = threadIdx.x; k < table.dims / 2; k += kEmbedThreads) {
        constexpr double kTurn = 6.283185307179586476925;
        double angle = p.lengths[row] * table.per_position[k];
        angle -= kTurn * rint(angle / kTurn);
        float s;
        float c;
        sincosf(static_cast<float>(angle), &s, &c);
        p.turns[at + k] = make_float2(c * table.scale, s * table.scale);
      }
      at += table.dims / 2;
    }
  }
  const int size = p.table.columns;
  const int column = blockIdx.x * kEmbedThreads + threadIdx.x;
  // A token that does not exist is the last one: the caller checks them.
  const int token = min(max(p.tokens[row], 0), p.table.rows - 1);
  float h = 0;
  if (column < size) {
    h = number_at(p.table, p.tiles, token, column) * p.factor;
    p.stream[static_cast<size_t>(row) * size + column] = h;
    if (p.gain) {
      p.y.data[p.y.at(row, column)] = __float2bfloat16(h * p.gain[column]);
    }
  }
  float square = h * h;
  for (int s = 8; s; s >>= 1) {
    square += __shfl_xor_sync(~0u, square, s);
  }
  if ((threadIdx.x & 15) == 0 && column < size) {
    p.squares[static_cast<size_t>(row) * ((size + 15) / 16) + column / 16] =
        square;
  }
}

constexpr int kNormThreads = 512;

__device__ float sum_of_block(float v, float* scratch) {
  v = sum_of_warp(v);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) {
    scratch[threadIdx.x >> 5] = v;
  }
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kNormThreads / 32; i++) {
    sum += scratch[i];
  }
  return sum;
}

// Of a row's numbers, each thread's own in `values`: what each is scaled by and
// what is taken away first.
__device__ float2
norm_of(const Norm& norm, const float* values, int size, float* scratch) {
  if (norm.kind == Norm::Kind::none) {
    return make_float2(1, 0);
  }
  float mean = 0;
  if (norm.kind == Norm::Kind::layer) {
    float sum = 0;
    for (int i = threadIdx.x; i < size; i += kNormThreads) {
      sum += values[i];
    }
    mean = sum_of_block(sum, scratch) / size;
  }
  float sum = 0;
  for (int i = threadIdx.x; i < size; i += kNormThreads) {
    float v = values[i] - mean;
    sum += v * v;
  }
  return make_float2(
      rsqrtf(sum_of_block(sum, scratch) / size + norm.eps),
      mean);
}
__device__ float normed(const Norm& norm, float2 by, float v, int i) {
  if (norm.kind == Norm::Kind::none) {
    return v;
  }
  v = (v - by.y) * by.x * (norm.weight ? norm.weight[i] : 1.f);
  return norm.bias ? v + norm.bias[i] : v;
}

__global__ void __launch_bounds__(kNormThreads)
    norm_rows(const __grid_constant__ NormRows p) {
  extern __shared__ float values[];  // [size]
  __shared__ float scratch[kNormThreads / 32];
  let_next_start();
  wait_for_previous();
  const int row = blockIdx.x;
  float* stream = p.stream + static_cast<size_t>(row) * p.size;
  if (p.branch) {
    const float* branch = p.branch + static_cast<size_t>(row) * p.size;
    for (int i = threadIdx.x; i < p.size; i += kNormThreads) {
      values[i] = branch[i];
    }
    float2 by = norm_of(p.after, values, p.size, scratch);
    for (int i = threadIdx.x; i < p.size; i += kNormThreads) {
      float h = stream[i] + p.multiplier * normed(p.after, by, values[i], i);
      stream[i] = h;
      values[i] = h;
    }
  } else {
    for (int i = threadIdx.x; i < p.size; i += kNormThreads) {
      values[i] = stream[i];
    }
  }
  float2 by = norm_of(p.before, values, p.size, scratch);
  for (int i = threadIdx.x; i < p.size; i += kNormThreads) {
    p.y.data[p.y.at(row, i)] =
        __float2bfloat16(normed(p.before, by, values[i], i));
  }
}

}  // namespace

Status launch_embed(const Embed& p, int rows, bool hopper, Stream stream) {
  int blocks = (p.table.columns + kEmbedThreads - 1) / kEmbedThreads;
  return launch(
      embed_rows,
      {dim3(blocks, rows), kEmbedThreads, 0, 1, hopper},
      stream,
      p);
}

Status
launch_norm_rows(const NormRows& p, int rows, bool hopper, Stream stream) {
  return launch(
      norm_rows,
      {dim3(rows), kNormThreads, p.size * sizeof(float), 1, hopper},
      stream,
      p);
}

}  // namespace mlxx::kernels::cuda
