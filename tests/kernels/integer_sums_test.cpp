// The byte kernels' sums against integers, exactly: scales of one and numbers
// so small that no float rounds.
#include <random>

#include <gtest/gtest.h>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr int kChunks = 6;
constexpr int kIn = kChunks * kChunk;

// Random quantized numbers [lane][input], and the panel that holds them.
struct Quantized {
  explicit Quantized(int bits)
      : layout{kIn, bits, kChunk, NumberType::float32, false, 0},
        numbers(kLanes * kIn),
        panel(layout.panel_bytes()) {
    std::mt19937 random(bits);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < kIn; ++i) {
        uint32_t number = random() & ((1u << bits) - 1);
        numbers[lane * kIn + i] = static_cast<int>(number);
        std::byte* group = panel.data() + i / kChunk * layout.group_bytes();
        reinterpret_cast<float*>(group)[lane] = 1;
        auto* words =
            reinterpret_cast<uint32_t*>(group + layout.header_bytes()) + lane;
        int bit = i % kChunk * bits;
        words[bit / 32 * kLanes] |= number << bit % 32;
        if (bit % 32 + bits > 32) {
          words[(bit / 32 + 1) * kLanes] |= number >> (32 - bit % 32);
        }
      }
    }
  }

  PanelLayout layout;
  std::vector<int> numbers;
  std::vector<std::byte> panel;
};

// Random activations [row][input], as integers and in the kernels' order.
struct Activations {
  Activations(int rows, ActivationForm form, ByteOrder order)
      : values(rows * kIn),
        high(rows * kIn),
        low(rows * kIn),
        scales(rows * kChunks, 1),
        sums(rows * kChunks, 0),
        view{
            form,
            rows,
            kIn,
            nullptr,
            high.data(),
            form == ActivationForm::int16 ? low.data() : nullptr,
            scales.data(),
            sums.data()} {
    bool two = form == ActivationForm::int16;
    std::mt19937 random(rows);
    for (int at = 0; at < rows * kIn; ++at) {
      int within = at % 8;
      int place = order == ByteOrder::in_order
          ? at
          : at - within + within / 2 + (within % 2) * 4;
      high[place] = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
      if (two) {
        high[place] = static_cast<int8_t>(high[place] / 16);
        low[place] =
            static_cast<int8_t>(static_cast<int>(random() % 256) - 128);
      }
      values[at] = two ? 256 * high[place] + low[place] : high[place];
    }
  }

  std::vector<int> values;
  std::vector<int8_t> high;
  std::vector<int8_t> low;
  std::vector<float> scales;
  std::vector<float> sums;
  ActivationRows view;
};

TEST(IntegerSums, AreExactOnEveryInstructionSet) {
  constexpr int kRows = 9;
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    Quantized w(bits);
    for (auto form : {ActivationForm::int8, ActivationForm::int16}) {
      Activations a(kRows, form, byte_order(w.layout));
      std::vector<float> expected(kRows * kLanes);
      for (int row = 0; row < kRows; ++row) {
        for (int lane = 0; lane < kLanes; ++lane) {
          int sum = 0;
          for (int i = 0; i < kIn; ++i) {
            sum += w.numbers[lane * kIn + i] * a.values[row * kIn + i];
          }
          expected[row * kLanes + lane] = static_cast<float>(sum);
        }
      }
      for (InstructionSet set : available_instruction_sets()) {
        const ByteKernels& kernels = byte_kernels(set);
        std::vector<float> alone(kRows * kLanes);
        for (int row = 0; row < kRows; ++row) {
          kernels.one_row(
              w.layout,
              w.panel.data(),
              a.view,
              row,
              &alone[row * kLanes]);
        }
        EXPECT_EQ(alone, expected) << bits << " bits, " << to_string(set);
        std::vector<uint8_t> q(kIn * kLanes);
        std::vector<float> scales(2 * kChunks * kLanes);
        std::vector<float> biases(kChunks * kLanes);
        std::vector<float> together(kRows * kLanes);
        kernels.unpack(
            w.layout,
            w.panel.data(),
            0,
            kChunks,
            q.data(),
            scales.data(),
            biases.data());
        kernels.many_rows(
            w.layout,
            q.data(),
            scales.data(),
            biases.data(),
            0,
            kChunks,
            a.view,
            0,
            kRows,
            true,
            together.data(),
            kLanes);
        EXPECT_EQ(together, expected) << bits << " bits, " << to_string(set);
      }
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
