#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/kernels/quantized_matmul/packed_panels.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

namespace mlxx::kernels {
namespace {

// Rows of random codes and scales, and MLX's form of the same.
class RandomRows : public QuantizedRows {
 public:
  RandomRows(int out, int in, int bits, bool symmetric)
      : form_{out, in, bits, symmetric},
        words_(size_t(out) * in * bits / 32),
        scales_(size_t(out) * in / 32),
        biases_(scales_.size()) {
    std::mt19937 random(out + in + bits);
    for (auto& word : words_) {
      word = static_cast<uint32_t>(random());
    }
    // Either sign, exponents from the smallest to 2^-6, the zeros too.
    for (size_t i = 0; i < scales_.size(); ++i) {
      scales_[i] = random() & 0xa3ff;
      biases_[i] = random() & 0xa3ff;
    }
  }

  const Form& form() const override {
    return form_;
  }
  bool read(
      int64_t first,
      int64_t count,
      uint32_t* words,
      uint16_t* scales,
      uint16_t* biases) const override {
    int64_t groups = form_.columns / kGroup;
    int64_t per_row = groups * form_.bits;
    std::copy_n(words_.data() + first * per_row, count * per_row, words);
    std::copy_n(scales_.data() + first * groups, count * groups, scales);
    if (!form_.symmetric) {
      std::copy_n(biases_.data() + first * groups, count * groups, biases);
    }
    return first > refused_row || first + count <= refused_row;
  }

  WeightArrays arrays() const {
    int out = static_cast<int>(form_.rows);
    int groups = static_cast<int>(form_.columns / kGroup);
    std::vector<float> scales, biases;
    for (size_t i = 0; i < scales_.size(); ++i) {
      scales.push_back(number(scales_[i]));
      biases.push_back(
          form_.symmetric
              ? scales[i] * -static_cast<float>(1 << (form_.bits - 1))
              : number(biases_[i]));
    }
    return {
        mx::array(words_.data(), {out, groups * form_.bits}, mx::uint32),
        mx::array(scales.data(), {out, groups}, mx::float32),
        mx::array(biases.data(), {out, groups}, mx::float32)};
  }

  // Biases that need not be kept, as in a file of Q4_0 converted to Q4_1.
  void make_symmetric() {
    for (size_t i = 0; i < scales_.size(); ++i) {
      mx::float16_t bias(number(scales_[i]) * -8);
      std::memcpy(&biases_[i], &bias, 2);
    }
  }

  int64_t refused_row = -1;

 private:
  static float number(uint16_t bits) {
    mx::float16_t half;
    std::memcpy(&half, &bits, 2);
    return static_cast<float>(half);
  }

  Form form_;
  std::vector<uint32_t> words_;
  std::vector<uint16_t> scales_;
  std::vector<uint16_t> biases_;
};

bool same_bytes(const mx::array& a, const mx::array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
      std::memcmp(a.data<char>(), b.data<char>(), a.nbytes()) == 0;
}

TEST(QuantizedRows, BecomeTheSamePanelsAsMlxsForm) {
  Selection selection = select_best();
  for (int bits : {4, 8}) {
    for (bool symmetric : {false, true}) {
      for (int out : {1, 5, 32, 63, 200}) {
        for (int in : {32, 96, 576}) {
          RandomRows rows(out, in, bits, symmetric);
          auto direct = PanelMatrix::from_rows(rows, selection);
          ASSERT_TRUE(direct) << bits << " " << out << " " << in;
          PanelMatrix usual(
              rows.arrays(),
              {QuantizedRows::kGroup, bits, "affine"},
              selection);
          EXPECT_EQ(direct->out(), usual.out());
          EXPECT_EQ(direct->in(), usual.in());
          EXPECT_EQ(direct->nbytes(), usual.nbytes());
          EXPECT_EQ(direct->layout().type, usual.layout().type);
          EXPECT_EQ(direct->layout().symmetric, usual.layout().symmetric);
          WeightArrays a = direct->restore();
          WeightArrays b = usual.restore();
          EXPECT_TRUE(same_bytes(a.weight, b.weight));
          EXPECT_TRUE(same_bytes(*a.scales, *b.scales));
          EXPECT_TRUE(same_bytes(*a.biases, *b.biases));
          // Lanes past the last row included.
          std::vector<float> x(in), y(out), z(out);
          for (int i = 0; i < in; ++i) {
            x[i] = std::sin(static_cast<float>(i));
          }
          direct->multiply(x.data(), 1, y.data());
          usual.multiply(x.data(), 1, z.data());
          EXPECT_EQ(y, z);
        }
      }
    }
  }
}

TEST(QuantizedRows, WhatNeedsAnotherFormIsLeftToMlxs) {
  Selection selection = select_best();
  RandomRows rows(100, 64, 4, false);
  rows.make_symmetric();
  EXPECT_FALSE(pack_rows(rows, selection));
  RandomRows refused(100, 64, 4, true);
  refused.refused_row = 99;
  EXPECT_FALSE(pack_rows(refused, selection));
  RandomRows plain(100, 64, 4, true);
  EXPECT_TRUE(pack_rows(plain, selection));
  selection.fallback = true;
  EXPECT_FALSE(pack_rows(plain, selection));
}

}  // namespace
}  // namespace mlxx::kernels
