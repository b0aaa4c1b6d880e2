// The parts of a product of dense matrices, for every instruction set and
// without MLX.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr NumberType kTypes[] = {
    NumberType::float32,
    NumberType::float16,
    NumberType::bfloat16};
constexpr int64_t kBefore = 3;  // rows and columns before the region at hand

// A matrix of numbers that each type holds exactly, with its values.
struct Matrix {
  Matrix(int64_t rows, int64_t columns, NumberType type, bool by_rows)
      : values(rows * columns), bytes(rows * columns * size(type)) {
    std::mt19937 random(static_cast<unsigned>(rows * 31 + columns));
    operand = {bytes.data(), type, by_rows ? columns : 1, by_rows ? 1 : rows};
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        int mantissa = static_cast<int>(random() % 255) - 127;
        float value = std::ldexp(static_cast<float>(mantissa), -7 - (j % 3));
        values[i * columns + j] = value;
        store(type, i * operand.row_stride + j * operand.column_stride, value);
      }
    }
  }
  Matrix(const Matrix&) = delete;

  static size_t size(NumberType type) {
    return type == NumberType::float32 ? 4 : 2;
  }

  void store(NumberType type, int64_t at, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (type == NumberType::float32) {
      std::memcpy(bytes.data() + at * 4, &bits, 4);
      return;
    }
    auto half = static_cast<uint16_t>(bits >> 16);
    if (type == NumberType::float16 && value != 0) {
      uint32_t exponent = ((bits >> 23) & 0xff) - 127 + 15;
      half = static_cast<uint16_t>(
          (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
    }
    std::memcpy(bytes.data() + at * 2, &half, 2);
  }

  std::vector<float> values;  // [rows, columns]
  std::vector<char> bytes;
  GemmOperand operand;
};

struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t depth;
};

// The product of a region of each matrix, twice added up, against sums in
// double; what lies beside it must stay.
void expect_product(
    const GemmKernels& kernels,
    const Shape& shape,
    const Matrix& a,
    const Matrix& b) {
  const auto& [rows, columns, depth] = shape;
  int64_t lda = depth + kBefore;
  int64_t ldb = columns + kBefore;
  int64_t pieces = (rows + kernels.tile_rows - 1) / kernels.tile_rows;
  std::vector<float> left(pieces * kernels.tile_rows * kGemmDepth);
  std::vector<float> right(depth * kGemmLanes);
  kernels.pack_left(a.operand, {kBefore, rows, kBefore, depth}, left.data());
  kernels.pack_right(
      b.operand,
      {kBefore, depth, kBefore, columns},
      right.data());
  constexpr float kUntouched = -77;
  int64_t ldy = columns + 2;
  std::vector<float> y(rows * ldy, kUntouched);
  for (bool first : {true, false}) {
    kernels.multiply(
        {left.data(),
         a.operand.column_stride == 1,
         rows,
         right.data(),
         kGemmLanes,
         depth,
         columns,
         first,
         y.data(),
         ldy});
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      double size = 0;
      for (int64_t k = 0; k < depth; ++k) {
        double product = double{a.values[(i + kBefore) * lda + k + kBefore]} *
            b.values[(k + kBefore) * ldb + j + kBefore];
        sum += 2 * product;
        size += 2 * std::abs(product);
      }
      ASSERT_NEAR(y[i * ldy + j], sum, 2e-6 * size) << i << " " << j;
    }
    ASSERT_EQ(y[i * ldy + columns], kUntouched) << i;
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t j = columns; j < kGemmLanes; ++j) {
      ASSERT_EQ(right[k * kGemmLanes + j], 0.0f) << k << " " << j;
    }
  }
}

TEST(GemmKernels, MultiplyRegionsOfEveryTypeAndOrder) {
  const Shape shapes[] = {
      {1, 1, 1},
      {5, 7, 33},
      {12, 32, 64},
      {13, 16, 100},
      {31, 31, 17},
      {48, 32, 512},
      {23, 20, 511}};
  for (auto set : available_instruction_sets()) {
    const GemmKernels& kernels = gemm_kernels(set);
    for (const Shape& shape : shapes) {
      for (NumberType type : kTypes) {
        for (int order = 0; order < 4; ++order) {
          SCOPED_TRACE(
              testing::Message()
              << to_string(set) << " " << shape.rows << "x" << shape.depth
              << "x" << shape.columns << " type " << static_cast<int>(type)
              << " order " << order);
          Matrix a(
              shape.rows + kBefore,
              shape.depth + kBefore,
              type,
              order & 1);
          Matrix b(
              shape.depth + kBefore,
              shape.columns + kBefore,
              type,
              order & 2);
          expect_product(kernels, shape, a, b);
          if (HasFatalFailure()) {
            return;
          }
        }
      }
    }
  }
}

TEST(GemmKernels, KeepWhatIsInfiniteOrNoNumber) {
  const uint16_t halves[] = {0x7c00, 0xfc00, 0x7e00, 0x3c00, 0x7bff, 0x0001};
  for (auto set : available_instruction_sets()) {
    const GemmKernels& kernels = gemm_kernels(set);
    std::vector<float> left(kernels.tile_rows * kGemmDepth);
    GemmOperand a{halves, NumberType::float16, 6, 1};
    kernels.pack_left(a, {0, 1, 0, 6}, left.data());
    EXPECT_EQ(left[0], std::numeric_limits<float>::infinity());
    EXPECT_EQ(left[1], -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(left[2])) << to_string(set);
    EXPECT_EQ(left[3], 1.0f);
    EXPECT_EQ(left[4], 65504.0f);
    EXPECT_EQ(left[5], 0x1p-24f);
  }
}

// Ties to even, subnormal and infinite results, what is no number.
TEST(GemmKernels, RoundToTheNearestHalf) {
  struct Case {
    float from;
    uint16_t float16;
    uint16_t bfloat16;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const Case cases[] = {
      {1.0f, 0x3c00, 0x3f80},
      {-2.5f, 0xc100, 0xc020},
      {1.0f + 0x1p-11f, 0x3c00, 0x3f80},
      {1.0f + 3 * 0x1p-11f, 0x3c02, 0x3f80},
      {1.0f + 0x1p-8f, 0x3c04, 0x3f80},
      {1.0f + 3 * 0x1p-8f, 0x3c0c, 0x3f82},
      {65519.0f, 0x7bff, 0x4780},
      {65520.0f, 0x7c00, 0x4780},
      {-1e20f, 0xfc00, 0xe0ad},
      {0x1p-24f, 0x0001, 0x3380},
      {0x1p-25f, 0x0000, 0x3300},
      {3 * 0x1p-25f, 0x0002, 0x33c0},
      {-0.0f, 0x8000, 0x8000},
      {3.4e38f, 0x7c00, 0x7f80},
      {infinity, 0x7c00, 0x7f80},
      {-infinity, 0xfc00, 0xff80}};
  constexpr size_t kCount = std::size(cases);
  for (auto set : available_instruction_sets()) {
    for (size_t count : {kCount, kCount - 1, size_t{5}}) {
      float from[kCount];
      for (size_t i = 0; i < kCount; ++i) {
        from[i] = cases[i].from;
      }
      constexpr uint16_t kUntouched = 0x1234;
      uint16_t float16[kCount + 1];
      uint16_t bfloat16[kCount + 1];
      std::fill_n(float16, kCount + 1, kUntouched);
      std::fill_n(bfloat16, kCount + 1, kUntouched);
      auto round = gemm_kernels(set).round;
      auto n = static_cast<int64_t>(count);
      round(from, n, NumberType::float16, float16);
      round(from, n, NumberType::bfloat16, bfloat16);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(float16[i], cases[i].float16) << to_string(set) << " " << i;
        EXPECT_EQ(bfloat16[i], cases[i].bfloat16) << to_string(set) << " " << i;
      }
      EXPECT_EQ(float16[count], kUntouched);
      EXPECT_EQ(bfloat16[count], kUntouched);
    }
    float nan = std::numeric_limits<float>::quiet_NaN();
    uint16_t half;
    gemm_kernels(set).round(&nan, 1, NumberType::float16, &half);
    EXPECT_GT(half & 0x7fff, 0x7c00) << to_string(set);
    gemm_kernels(set).round(&nan, 1, NumberType::bfloat16, &half);
    EXPECT_GT(half & 0x7fff, 0x7f80) << to_string(set);
  }
}

TEST(GemmKernels, DequantizeChunksAsRowsOfOutputs) {
  constexpr int64_t kChunks = 3;
  constexpr int64_t kStride = kLanes * kChunk + 64;
  std::vector<float> q(kChunks * kChunk * kLanes);
  std::vector<float> scales(kChunks * 2 * kLanes);
  std::vector<float> biases(kChunks * kLanes);
  std::mt19937 random(5);
  for (auto* numbers : {&q, &scales, &biases}) {
    for (float& number : *numbers) {
      number = static_cast<float>(random() % 64) / 8 - 4;
    }
  }
  for (auto set : available_instruction_sets()) {
    std::vector<float> to(kChunks * kStride);
    gemm_kernels(set).dequantize_chunks(
        q.data(),
        scales.data(),
        biases.data(),
        kChunks,
        to.data(),
        kStride);
    for (int64_t i = 0; i < kChunks * kChunk * kLanes; ++i) {
      int64_t chunk = i / (kChunk * kLanes);
      int64_t input = i / kLanes % kChunk;
      int64_t lane = i % kLanes;
      int64_t half = input / (kChunk / 2);
      float expected = q[i] * scales[(2 * chunk + half) * kLanes + lane] +
          biases[chunk * kLanes + lane];
      ASSERT_EQ(to[chunk * kStride + lane * kChunk + input], expected)
          << to_string(set) << " " << i;
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
