#include <algorithm>
#include <vector>

#include "mlxx/kernels/matmul/gemm.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {
namespace {

// Chunks of a panel unpacked at a time: 32 KiB of numbers, which the nearest
// cache holds.
constexpr int64_t kChunks = 8;

static_assert(kGemmLanes == kChunk && kGemmDepth % kLanes == 0);

}  // namespace

void PanelMatrix::multiply_transposed(const float* y, int64_t rows, float* x)
    const {
  GemmRight right;
  // Rows of the right matrix are outputs, 32 of its columns are a chunk.
  right.pack = [this](const RightBlock& block) {
    std::vector<float> q(kChunks * kChunk * kLanes);
    std::vector<float> scales(2 * kChunks * kLanes);
    std::vector<float> biases(kChunks * kLanes);
    for (int64_t row = 0; row < block.rows; row += kLanes) {
      const std::byte* numbers = panel((block.row + row) / kLanes);
      for (int64_t from = block.first; from < block.last; from += kChunks) {
        int64_t to = std::min(from + kChunks, block.last);
        kernels_.floats->unpack(
            layout_,
            numbers,
            from,
            to,
            q.data(),
            scales.data(),
            biases.data());
        // Lanes past the last output end in room that nothing reads.
        gemm_machine_.kernels->dequantize_chunks(
            q.data(),
            scales.data(),
            biases.data(),
            to - from,
            block.to + (from - block.first) * block.stride + row * kGemmLanes,
            block.stride);
      }
    }
  };
  gemm(
      {rows, layout_.in, out_},
      {y, NumberType::float32, out_, 1},
      right,
      {x, NumberType::float32},
      gemm_machine_);
}

}  // namespace mlxx::kernels
