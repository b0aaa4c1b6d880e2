#pragma once

#include "mlxx/kernels/decode_step/cuda/product_ends.cuh"

namespace mlxx::kernels::cuda {

inline constexpr int kMostRotations = 4;

// stream = a token's row of the embedding times a factor; y = stream * gain and
// its sums of squares; the step's angles of every table.
struct Embed {
  const int32_t* tokens = nullptr;
  const int32_t* lengths = nullptr;
  PackedMatrix table;
  int tiles = 0;
  float factor = 1;
  float* stream = nullptr;      // [rows, E]
  const float* gain = nullptr;  // [E] or null: no y
  Rows y;
  float* squares = nullptr;  // [rows, E / 16, rounded up]
  RotationTable rotations[kMostRotations];
  int rotation_count = 0;
  float2* turns = nullptr;  // [rows, turns_stride]
  int turns_stride = 0;
};
Status launch_embed(const Embed& embed, int rows, bool hopper, Stream stream);

// stream += multiplier * after(branch); y = before(stream).
struct NormRows {
  const float* branch = nullptr;  // [rows, size] or null
  Norm after;
  float multiplier = 1;
  float* stream = nullptr;
  Norm before;
  Rows y;
  int size = 0;
};
Status
launch_norm_rows(const NormRows& norm, int rows, bool hopper, Stream stream);

}  // namespace mlxx::kernels::cuda
