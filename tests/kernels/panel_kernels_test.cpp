// Products of dense panels, which no other test asks of every instruction set
// without MLX.
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr int kRows = 27;

// Numbers that each type holds exactly: 8 bits of mantissa.
struct Dense {
  Dense(NumberType type, int64_t in)
      : layout{in, 0, kChunk, type, false, 0},
        numbers(in * kLanes),
        panel(layout.panel_bytes()),
        x(kRows * in) {
    std::mt19937 random(static_cast<unsigned>(in));
    std::normal_distribution<float> normal;
    for (float& v : x) {
      v = normal(random);
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      int mantissa = static_cast<int>(random() % 255) - 127;
      numbers[i] = std::ldexp(static_cast<float>(mantissa), -7 - (i % 3));
      store(i, numbers[i]);
    }
  }

  void store(size_t i, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    size_t at = layout.dense_offset(
        static_cast<int64_t>(i) / kLanes,
        static_cast<int>(i % kLanes));
    if (layout.type == NumberType::float32) {
      std::memcpy(panel.data() + at, &bits, 4);
      return;
    }
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (layout.type == NumberType::float16 && value != 0) {
      uint32_t exponent = ((bits >> 23) & 0xff) - 127 + 15;
      half = static_cast<uint16_t>(
          (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
    }
    std::memcpy(panel.data() + at, &half, 2);
  }

  // Of rows `inputs` [kRows, in].
  double expected(
      const std::vector<float>& inputs,
      int row,
      int lane,
      double* size) const {
    double sum = 0;
    for (int64_t i = 0; i < layout.in; ++i) {
      double product =
          double{inputs[row * layout.in + i]} * numbers[i * kLanes + lane];
      sum += product;
      *size += std::abs(product);
    }
    return sum;
  }

  PanelLayout layout;
  std::vector<float> numbers;  // [in, lanes]
  std::vector<std::byte> panel;
  std::vector<float> x;  // [kRows, in]
};

constexpr NumberType kTypes[] = {
    NumberType::bfloat16,
    NumberType::float16,
    NumberType::float32};

TEST(PanelKernels, MultiplyDensePanelsWithTheSameBitsForEveryNumberOfRows) {
  for (auto type : kTypes) {
    for (int64_t in : {32, 96, 576}) {
      Dense w(type, in);
      for (InstructionSet set : available_instruction_sets()) {
        auto multiply = [&](int64_t first, int64_t rows) {
          std::vector<float> y(rows * kLanes);
          dense_kernels(set).many_rows(
              w.layout,
              w.panel.data(),
              w.x.data() + first * in,
              rows,
              y.data());
          return y;
        };
        auto y = multiply(0, kRows);
        for (int row = 0; row < kRows; ++row) {
          auto alone = multiply(row, 1);
          for (int lane = 0; lane < kLanes; ++lane) {
            float got = y[row * kLanes + lane];
            EXPECT_EQ(alone[lane], got) << to_string(set) << " row " << row;
            double size = 0;
            double expected = w.expected(w.x, row, lane, &size);
            EXPECT_NEAR(got, expected, 1e-6 * size) << to_string(set);
          }
        }
        for (int64_t rows = 1; rows < kRows; ++rows) {
          auto few = multiply(0, rows);
          EXPECT_TRUE(std::equal(few.begin(), few.end(), y.begin()))
              << to_string(set) << " " << rows << " rows";
        }
      }
    }
  }
}

float widened(uint16_t bfloat) {
  uint32_t bits = uint32_t{bfloat} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

TEST(PanelKernels, MultiplyRowsRoundedToBfloat16) {
  for (int64_t in : {32, 96, 576}) {
    Dense w(NumberType::bfloat16, in);
    for (InstructionSet set : available_instruction_sets()) {
      const DenseKernels& kernels = dense_kernels(set);
      ASSERT_EQ(kernels.round_row == nullptr, !kernels.many_rounded_rows);
      if (!kernels.round_row) {
        continue;
      }
      std::vector<uint16_t> rounded(kRows * in);
      std::vector<float> inputs;
      kernels.round_row(w.x.data(), kRows * in, rounded.data());
      for (size_t i = 0; i < rounded.size(); ++i) {
        inputs.push_back(widened(rounded[i]));
        EXPECT_NEAR(inputs[i], w.x[i], 0.004f * std::abs(w.x[i]));
      }
      auto multiply = [&](int64_t first, int64_t rows) {
        std::vector<float> y(rows * kLanes);
        kernels.many_rounded_rows(
            w.layout,
            w.panel.data(),
            rounded.data() + first * in,
            rows,
            y.data());
        return y;
      };
      auto y = multiply(0, kRows);
      for (int row = 0; row < kRows; ++row) {
        auto alone = multiply(row, 1);
        for (int lane = 0; lane < kLanes; ++lane) {
          float got = y[row * kLanes + lane];
          EXPECT_EQ(alone[lane], got) << to_string(set) << " row " << row;
          double size = 0;
          double expected = w.expected(inputs, row, lane, &size);
          EXPECT_NEAR(got, expected, 2e-6 * size) << to_string(set);
        }
      }
      for (int64_t rows = 1; rows < kRows; ++rows) {
        auto few = multiply(0, rows);
        EXPECT_TRUE(std::equal(few.begin(), few.end(), y.begin()))
            << to_string(set) << " " << rows << " rows";
      }
    }
  }
}

TEST(PanelKernels, RoundToTheNearestBfloat16) {
  for (InstructionSet set : available_instruction_sets()) {
    const DenseKernels& kernels = dense_kernels(set);
    if (!kernels.round_row) {
      continue;
    }
    // A unit in the last place of bfloat16 is 2^-7 of one.
    std::vector<float> x(kChunk, 0.0f);
    x[1] = 1 + 0x1p-8f;            // between two: to the even one, below
    x[2] = 1 + 0x1p-7f + 0x1p-8f;  // the same, above
    x[3] = 1 + 0x1p-8f + 0x1p-20f;
    x[4] = -3e38f;
    x[5] = INFINITY;
    x[6] = NAN;
    std::vector<uint16_t> rounded(kChunk);
    kernels.round_row(x.data(), kChunk, rounded.data());
    EXPECT_EQ(widened(rounded[0]), 0.0f);
    EXPECT_EQ(widened(rounded[1]), 1.0f);
    EXPECT_EQ(widened(rounded[2]), 1 + 0x1p-6f);
    EXPECT_EQ(widened(rounded[3]), 1 + 0x1p-7f);
    EXPECT_NEAR(widened(rounded[4]), -3e38f, 1e36f);
    EXPECT_EQ(widened(rounded[5]), INFINITY);
    EXPECT_TRUE(std::isnan(widened(rounded[6])));
  }
}

TEST(PanelKernels, UnpackDensePanels) {
  for (auto type : kTypes) {
    Dense w(type, 96);
    for (InstructionSet set : available_instruction_sets()) {
      std::vector<float> q(64 * kLanes);
      std::vector<float> scales(2 * 2 * kLanes);
      std::vector<float> biases(2 * kLanes);
      panel_kernels(set).unpack(
          w.layout,
          w.panel.data(),
          1,
          3,
          q.data(),
          scales.data(),
          biases.data());
      EXPECT_TRUE(
          std::equal(q.begin(), q.end(), w.numbers.begin() + kChunk * kLanes))
          << to_string(set);
      EXPECT_EQ(scales, std::vector<float>(scales.size(), 1));
      EXPECT_EQ(biases, std::vector<float>(biases.size(), 0));
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
