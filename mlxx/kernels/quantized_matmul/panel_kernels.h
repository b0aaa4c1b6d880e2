#pragma once

#include <cstddef>
#include <cstdint>

// What the source compiled once per instruction set and the code around it
// agree on. That source includes no other header, so that no inline function
// of the standard library is compiled for a processor that is not there.
namespace mlxx::kernels {

// Output features per panel.
inline constexpr int kLanes = 32;
// Input features per chunk. Products are summed over half a chunk, then
// multiplied by the scale and added up: always in this order, so that a row's
// result does not depend on how many rows there are or who computes it.
inline constexpr int kChunk = 32;

// Those of eight bits are scales only: e8m0 is a power of two, e4m3 a signed
// number with four bits of exponent and three of mantissa.
enum class NumberType { float16, bfloat16, float32, e8m0, e4m3 };

// What the numbers of a quantized matrix stand for.
enum class Codes {
  integers,  // unsigned
  // Four bits: a sign and one of 0, 0.5, 1, 1.5, 2, 3, 4, 6.
  e2m1,
  e4m3,  // eight bits
};

// A quantized matrix [out, in] of affine groups, w = q * scale + bias, cut
// into panels of 32 output features. One panel is one sequential stream: for
// each group of inputs 32 scales, 32 biases (absent if symmetric), then for
// each chunk of 32 inputs `bits` x 32 words of 32 bits. Word w of lane l
// holds the bits 32w .. 32w+31 of the little-endian bit string of the chunk's
// 32 numbers of output l, as MLX packs them.
//
// Floating-point codes (mxfp4, mxfp8: OCP Microscaling Formats 1.0; nvfp4) lie
// the same way, w = value of the code * scale, with scales of eight bits and no
// biases. Groups of 16 inputs are two per group of the layout: 32 scales of
// the first half of the chunk, then 32 of the second.
//
// A dense matrix has panels of the same shape: chunks of 32 inputs x 32 lanes,
// without scales and biases. Those of bfloat16 lie in pairs of inputs, 16 x 32
// lanes x 2, as instructions take them.
struct PanelLayout {
  int64_t in;
  int bits;         // 2, 3, 4, 5, 6, 8; 0 if dense
  int group_size;   // a multiple of 32
  NumberType type;  // of scales and biases, or of the dense numbers
  // Every bias is `zero` times the scale: not stored.
  bool symmetric;
  float zero;
  Codes codes = Codes::integers;
  // Each half of a chunk has its own scale.
  bool half_groups = false;

  int64_t chunks() const {
    return in / kChunk;
  }
  int chunks_per_group() const {
    return group_size / kChunk;
  }
  bool is_dense() const {
    return bits == 0;
  }
  // Where number `input` of a lane of a dense panel is, in bytes.
  size_t dense_offset(int64_t input, int lane) const {
    int64_t at = type == NumberType::bfloat16
        ? input / 2 * (2 * kLanes) + 2 * lane + input % 2
        : input * kLanes + lane;
    return at * number_bytes();
  }
  size_t number_bytes() const {
    switch (type) {
      case NumberType::float32:
        return 4;
      case NumberType::float16:
      case NumberType::bfloat16:
        return 2;
      case NumberType::e8m0:
      case NumberType::e4m3:
        return 1;
    }
    return 4;
  }
  size_t header_bytes() const {
    return is_dense()
        ? 0
        : kLanes * number_bytes() * (symmetric && !half_groups ? 1 : 2);
  }
  size_t chunk_bytes() const {
    return is_dense() ? kChunk * kLanes * number_bytes()
                      : static_cast<size_t>(bits) * kLanes * 4;
  }
  size_t group_bytes() const {
    return header_bytes() + chunks_per_group() * chunk_bytes();
  }
  size_t panel_bytes() const {
    return (in / group_size) * group_bytes();
  }
};

struct PanelKernels {
  // sums[c] = x[32c] + ... + x[32c + 31]; x [in].
  void (*chunk_sums)(const float* x, int64_t chunks, float* sums);

  // y[0..31] = one row x [in] times a panel that is not dense; sums [in / 32].
  void (*one_row)(
      const PanelLayout& layout,
      const std::byte* panel,
      const float* x,
      const float* sums,
      float* y);

  // The quantized numbers of chunks [from, to) as floats: q [chunk][32
  // inputs][32 lanes]; their scales [chunk][2 halves][32 lanes] and biases
  // [chunk][32 lanes], which are 1 and 0 if the matrix is dense.
  void (*unpack)(
      const PanelLayout& layout,
      const std::byte* panel,
      int64_t from,
      int64_t to,
      float* q,
      float* scales,
      float* biases);

  // Adds to y (or starts it, if `first`) the products of `rows` rows with
  // `chunks` unpacked chunks. x points at the first of these chunks' inputs.
  void (*many_rows)(
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
      int64_t ldy);
};

// One per compiled variant; panel_kernels() picks.
extern const PanelKernels kPanelKernelsPortable;
extern const PanelKernels kPanelKernelsAvx2;
extern const PanelKernels kPanelKernelsAvx512;

}  // namespace mlxx::kernels
