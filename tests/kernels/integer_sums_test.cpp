// The byte kernels' sums against integers, exactly: scales of one and numbers
// so small that no float rounds.
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr int kChunks = 6;
constexpr int kIn = kChunks * kChunk;

// Random quantized numbers [lane][input], and the panel that holds them.
struct Quantized {
  Quantized(int bits, bool symmetric)
      : layout{kIn, bits, kChunk, NumberType::float32, symmetric, -static_cast<float>(1 << (bits - 1))},
        numbers(kLanes * kIn),
        panel(layout.panel_bytes()) {
    std::mt19937 random(bits);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < kIn; ++i) {
        uint32_t number = random() & ((1u << bits) - 1);
        int offset = symmetric ? 1 << (bits - 1) : 0;
        numbers[lane * kIn + i] = static_cast<int>(number) - offset;
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
        byte_sums(2 * rows * kChunks),
        view{
            form,
            rows,
            kIn,
            nullptr,
            high.data(),
            form == ActivationForm::int16 ? low.data() : nullptr,
            scales.data(),
            sums.data(),
            byte_sums.data()} {
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
      byte_sums[at / kChunk * 2] += values[at];
      byte_sums[at / kChunk * 2 + 1] +=
          at % kChunk < kChunk / 2 ? 0 : values[at];
    }
  }

  std::vector<int> values;
  std::vector<int8_t> high;
  std::vector<int8_t> low;
  std::vector<float> scales;
  std::vector<float> sums;
  std::vector<int32_t> byte_sums;
  ActivationRows view;
};

std::vector<float> expected_sums(const Quantized& w, const Activations& a) {
  std::vector<float> sums;
  for (int64_t row = 0; row < a.view.rows; ++row) {
    for (int lane = 0; lane < kLanes; ++lane) {
      int sum = 0;
      for (int i = 0; i < kIn; ++i) {
        sum += w.numbers[lane * kIn + i] * a.values[row * kIn + i];
      }
      sums.push_back(static_cast<float>(sum));
    }
  }
  return sums;
}

TEST(IntegerSums, AreExactOnEveryInstructionSetForEveryNumberOfRows) {
  auto scratch = std::make_unique<ByteScratch>();
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (bool symmetric : {false, true}) {
      Quantized w(bits, symmetric);
      for (auto form : {ActivationForm::int8, ActivationForm::int16}) {
        for (int rows : {1, 2, 3, 4, 5, 6, 7, 9, 13}) {
          Activations a(rows, form, byte_order(w.layout));
          auto expected = expected_sums(w, a);
          for (InstructionSet set : available_instruction_sets()) {
            const ByteKernels& kernels = byte_kernels(set);
            std::vector<float> alone(rows * kLanes);
            for (int row = 0; row < rows; ++row) {
              kernels.one_row(
                  w.layout,
                  w.panel.data(),
                  a.view,
                  row,
                  &alone[row * kLanes]);
            }
            EXPECT_EQ(alone, expected) << bits << " bits, " << to_string(set);
            std::vector<float> together(rows * kLanes);
            kernels.many_rows(
                w.layout,
                w.panel.data(),
                a.view,
                *scratch,
                together.data());
            EXPECT_EQ(together, expected)
                << bits << " bits, " << rows << " rows, " << to_string(set);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
