#include "mlxx/kernels/quantized_matmul/byte_kernels.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr int kChunks = 6;
constexpr int kIn = kChunks * kChunk;

std::vector<float> numbers(int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kIn);
  for (float& v : x) {
    v = normal(random);
  }
  return x;
}

struct Row {
  std::vector<int8_t> high = std::vector<int8_t>(kIn);
  std::vector<int8_t> low = std::vector<int8_t>(kIn);
  std::vector<float> scales = std::vector<float>(kChunks);
  std::vector<float> sums = std::vector<float>(kChunks);
  std::vector<int32_t> byte_sums = std::vector<int32_t>(2 * kChunks);

  bool operator==(const Row&) const = default;
};

Row quantize(
    const ByteKernels& kernels,
    const std::vector<float>& x,
    ByteOrder order,
    bool two_bytes) {
  Row row;
  kernels.quantize_row(
      x.data(),
      kChunks,
      order,
      row.high.data(),
      two_bytes ? row.low.data() : nullptr,
      row.scales.data(),
      row.sums.data(),
      row.byte_sums.data());
  return row;
}

TEST(ByteKernels, RoundActivationsAlikeOnEveryInstructionSet) {
  auto x = numbers(1);
  for (bool two_bytes : {false, true}) {
    Row expected =
        quantize(kByteKernelsPortable, x, ByteOrder::in_order, two_bytes);
    for (InstructionSet set : available_instruction_sets()) {
      const ByteKernels& kernels = byte_kernels(set);
      Row row = quantize(kernels, x, ByteOrder::in_order, two_bytes);
      EXPECT_EQ(row, expected) << to_string(set);
      Row even = quantize(kernels, x, ByteOrder::even_first, two_bytes);
      for (int i = 0; i < kIn; ++i) {
        int within = i % 8;
        int place = i - within + within / 2 + (within % 2) * 4;
        EXPECT_EQ(even.high[place], row.high[i]);
        EXPECT_EQ(even.low[place], row.low[i]);
      }
    }
    for (int c = 0; c < kChunks; ++c) {
      float sum = 0;
      float largest = 0;
      int total = 0;
      int second = 0;
      for (int i = 0; i < kChunk; ++i) {
        int at = c * kChunk + i;
        int integer = two_bytes ? expected.high[at] * 256 + expected.low[at]
                                : expected.high[at];
        total += integer;
        second += i < kChunk / 2 ? 0 : integer;
      }
      EXPECT_EQ(expected.byte_sums[2 * c], total);
      EXPECT_EQ(expected.byte_sums[2 * c + 1], second);
      for (int i = c * kChunk; i < (c + 1) * kChunk; ++i) {
        largest = std::max(largest, std::abs(x[i]));
      }
      for (int i = c * kChunk; i < (c + 1) * kChunk; ++i) {
        float value = expected.scales[c] *
            static_cast<float>(
                          two_bytes ? expected.high[i] * 256 + expected.low[i]
                                    : expected.high[i]);
        sum += value;
        EXPECT_NEAR(value, x[i], largest * (two_bytes ? 1.6e-5f : 4e-3f));
      }
      EXPECT_NEAR(expected.sums[c], sum, 1e-4f);
    }
  }
}

TEST(ByteKernels, KeepWhatIsNoNumberAndWhatIsTiny) {
  for (InstructionSet set : available_instruction_sets()) {
    for (bool two_bytes : {false, true}) {
      for (float bad : {NAN, INFINITY, -INFINITY}) {
        auto x = numbers(2);
        x[70] = bad;
        Row row =
            quantize(byte_kernels(set), x, ByteOrder::in_order, two_bytes);
        EXPECT_FALSE(std::isfinite(row.scales[2])) << to_string(set);
        EXPECT_TRUE(std::isfinite(row.scales[1]));
      }
      std::vector<float> tiny(kIn, 1e-38f);
      Row row =
          quantize(byte_kernels(set), tiny, ByteOrder::in_order, two_bytes);
      EXPECT_EQ(row.high[0], 0);
      EXPECT_TRUE(std::isfinite(row.sums[0]));
    }
  }
}

// The largest bytes of both kinds: nothing may saturate on the way.
TEST(ByteKernels, SumTheLargestBytesExactly) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    PanelLayout layout{kIn, bits, kChunk, NumberType::float32, false, 0};
    std::vector<std::byte> panel(layout.panel_bytes(), std::byte{0xff});
    for (int c = 0; c < kChunks; ++c) {
      auto* header =
          reinterpret_cast<float*>(panel.data() + c * layout.group_bytes());
      for (int lane = 0; lane < kLanes; ++lane) {
        header[lane] = 1;           // scales
        header[kLanes + lane] = 0;  // biases
      }
    }
    for (float sign : {1.0f, -1.0f}) {
      std::vector<float> x(kIn, sign);
      for (InstructionSet set : available_instruction_sets()) {
        const ByteKernels& kernels = byte_kernels(set);
        for (bool two_bytes : {false, true}) {
          Row row = quantize(kernels, x, byte_order(layout), two_bytes);
          ActivationRows rows{
              two_bytes ? ActivationForm::int16 : ActivationForm::int8,
              1,
              kIn,
              nullptr,
              row.high.data(),
              two_bytes ? row.low.data() : nullptr,
              row.scales.data(),
              row.sums.data(),
              row.byte_sums.data()};
          float y[kLanes];
          kernels.one_row(layout, panel.data(), rows, 0, y);
          float expected = sign * kIn * static_cast<float>((1 << bits) - 1);
          EXPECT_NEAR(y[0], expected, 1e-3f * std::abs(expected))
              << bits << " bits, " << to_string(set);
          EXPECT_EQ(y[0], y[31]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
