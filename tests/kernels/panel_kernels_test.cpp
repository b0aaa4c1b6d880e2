// Products of dense panels, which no other test asks of every instruction set
// without MLX.
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr int kRows = 17;

// Numbers that each type holds exactly: 8 bits of mantissa.
struct Dense {
  Dense(NumberType type, int64_t in)
      : layout{in, 0, kChunk, type, false, 0},
        numbers(in * kLanes),
        panel(layout.panel_bytes()),
        x(kRows * in),
        sums(kRows * in / kChunk, 0) {
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
    if (layout.type == NumberType::float32) {
      std::memcpy(panel.data() + i * 4, &bits, 4);
      return;
    }
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (layout.type == NumberType::float16 && value != 0) {
      uint32_t exponent = ((bits >> 23) & 0xff) - 127 + 15;
      half = static_cast<uint16_t>(
          (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
    }
    std::memcpy(panel.data() + i * 2, &half, 2);
  }

  double expected(int row, int lane, double* size) const {
    double sum = 0;
    for (int64_t i = 0; i < layout.in; ++i) {
      double product =
          double{x[row * layout.in + i]} * numbers[i * kLanes + lane];
      sum += product;
      *size += std::abs(product);
    }
    return sum;
  }

  PanelLayout layout;
  std::vector<float> numbers;  // [in, lanes]
  std::vector<std::byte> panel;
  std::vector<float> x;  // [kRows, in]
  std::vector<float> sums;
};

std::vector<float>
multiply(const PanelKernels& kernels, const Dense& w, int64_t rows) {
  int64_t chunks = w.layout.chunks();
  std::vector<float> q(w.layout.in * kLanes);
  std::vector<float> scales(2 * chunks * kLanes);
  std::vector<float> biases(chunks * kLanes);
  std::vector<float> y(rows * kLanes);
  kernels.unpack(
      w.layout,
      w.panel.data(),
      0,
      chunks,
      q.data(),
      scales.data(),
      biases.data());
  kernels.many_rows(
      q.data(),
      scales.data(),
      biases.data(),
      chunks,
      w.x.data(),
      w.layout.in,
      w.sums.data(),
      chunks,
      rows,
      true,
      y.data(),
      kLanes);
  return y;
}

TEST(PanelKernels, MultiplyDensePanelsWithTheSameBitsForEveryNumberOfRows) {
  for (auto type :
       {NumberType::bfloat16, NumberType::float16, NumberType::float32}) {
    for (int64_t in : {32, 96, 576}) {
      Dense w(type, in);
      for (InstructionSet set : available_instruction_sets()) {
        const PanelKernels& kernels = panel_kernels(set);
        auto y = multiply(kernels, w, kRows);
        for (int row = 0; row < kRows; ++row) {
          float alone[kLanes];
          kernels.one_row(
              w.layout,
              w.panel.data(),
              w.x.data() + row * in,
              w.sums.data(),
              alone);
          for (int lane = 0; lane < kLanes; ++lane) {
            float got = y[row * kLanes + lane];
            EXPECT_EQ(alone[lane], got) << to_string(set) << " row " << row;
            double size = 0;
            double expected = w.expected(row, lane, &size);
            EXPECT_NEAR(got, expected, 1e-6 * size) << to_string(set);
          }
        }
        for (int64_t rows = 1; rows < kRows; ++rows) {
          auto few = multiply(kernels, w, rows);
          EXPECT_TRUE(std::equal(few.begin(), few.end(), y.begin()))
              << to_string(set) << " " << rows << " rows";
        }
      }
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
