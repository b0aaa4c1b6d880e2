#include "mlxx/kernels/short_conv/short_conv.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/recurrent_reference.h"

namespace mlxx::kernels {
namespace {

class ShortConv : public RecurrentOp {};

struct Sizes {
  int B, L, C, W;
  bool bias;
  bool silu;
};

const Sizes kSizes[] = {
    {1, 1, 1, 2, false, false},
    {2, 5, 7, 3, true, false},
    {2, 2, 66, 4, false, true},
    {1, 40, 130, 4, true, true},
};

ShortConvInputs make_inputs(const Sizes& s, bool with_state = true) {
  ShortConvInputs in{
      normal({s.B, s.L, s.C}, 1),
      normal({s.C, s.W, 1}, 2),
      std::nullopt,
      s.silu,
      std::nullopt,
      std::nullopt};
  if (s.bias) {
    in.bias = normal({s.C}, 3);
  }
  if (with_state) {
    in.state = normal({s.B, s.W - 1, s.C}, 4);
  }
  return in;
}

struct Reference {
  std::vector<double> y;
  std::vector<double> state;
};

Reference reference(
    const ShortConvInputs& in,
    const std::vector<int>& lengths = {}) {
  int B = in.x.shape(0), L = in.x.shape(1), C = in.x.shape(2);
  int W = in.weight.shape(1);
  auto x = numbers(in.x), w = numbers(in.weight);
  std::vector<double> old(size_t(B) * (W - 1) * C);
  if (in.state) {
    old = numbers(*in.state);
  }
  auto at = [&](int b, int t, int c) {
    return t < W - 1 ? old[(size_t(b) * (W - 1) + t) * C + c]
                     : x[(size_t(b) * L + t - (W - 1)) * C + c];
  };
  std::vector<double> bias(C);
  if (in.bias) {
    bias = numbers(*in.bias);
  }
  Reference r;
  for (int b = 0; b < B; ++b) {
    for (int t = 0; t < L; ++t) {
      for (int c = 0; c < C; ++c) {
        double y = bias[c];
        for (int j = 0; j < W; ++j) {
          y += w[size_t(c) * W + j] * at(b, t + j, c);
        }
        r.y.push_back(in.silu ? y / (1 + std::exp(-y)) : y);
      }
    }
    int end = lengths.empty() ? L : std::min(std::max(lengths[b], 0), L);
    for (int t = end; t < end + W - 1; ++t) {
      for (int c = 0; c < C; ++c) {
        r.state.push_back(at(b, t, c));
      }
    }
  }
  return r;
}

TEST_F(ShortConv, AgreesWithDoublePrecision) {
  for (const auto& sizes : kSizes) {
    for (bool with_state : {false, true}) {
      auto in = make_inputs(sizes, with_state);
      auto expected = reference(in);
      auto selections = every_selection();
      selections.push_back({});
      for (const auto& selection : selections) {
        auto got = short_conv(in, selection);
        EXPECT_EQ(got.out.shape(), in.x.shape());
        EXPECT_LT(distance(got.out, expected.y), 1e-6);
        if (with_state || sizes.L > 1) {
          EXPECT_LT(distance(got.state, expected.state), 1e-7);
        }
      }
    }
  }
}

TEST_F(ShortConv, PaddingStaysOutOfTheState) {
  for (const std::vector<int>& lengths :
       std::vector<std::vector<int>>{{3, 5}, {0, 1}, {-2, 9}}) {
    auto in = make_inputs(kSizes[1]);
    auto expected = reference(in, lengths);
    in.lengths = mx::array(lengths.data(), {2}, mx::int32);
    auto selections = every_selection();
    selections.push_back({});
    for (const auto& selection : selections) {
      auto got = short_conv(in, selection);
      EXPECT_LT(distance(got.state, expected.state), 1e-7);
      EXPECT_LT(distance(got.out, expected.y), 1e-6);
    }
  }
}

TEST_F(ShortConv, ARowHasTheSameBitsInEveryCompany) {
  for (const auto& sizes : {kSizes[1], kSizes[2]}) {
    auto in = make_inputs(sizes);
    for (InstructionSet set : available_instruction_sets()) {
      Selection many{
          .instruction_set = set,
          .threads = std::make_shared<ThreadPool>(3)};
      Selection one{
          .instruction_set = set,
          .threads = std::make_shared<ThreadPool>(1)};
      auto whole = short_conv(in, many);
      auto piece = in;
      piece.state = sequence(*in.state, 1);
      for (int t = 0; t < sizes.L; ++t) {
        piece.x = tokens(sequence(in.x, 1), t, t + 1);
        auto got = short_conv(piece, one);
        EXPECT_TRUE(
            same_bits(got.out, tokens(sequence(whole.out, 1), t, t + 1)));
        piece.state = got.state;
      }
      EXPECT_TRUE(same_bits(*piece.state, sequence(whole.state, 1)));
    }
  }
}

TEST_F(ShortConv, GradientsAreRight) {
  for (bool silu : {false, true}) {
    auto in = make_inputs({2, 3, 5, 3, true, silu});
    for (const auto& selection : {Selection{}, select_best()}) {
      auto function = [&](const std::vector<mx::array>& x) {
        auto got =
            short_conv({x[0], x[1], x[2], silu, x[3], std::nullopt}, selection);
        return std::vector{got.out, got.state};
      };
      EXPECT_TRUE(
          check_gradient(function, {in.x, in.weight, *in.bias, *in.state}));
    }
  }
}

TEST_F(ShortConv, ShapesThatDoNotFitAreRefused) {
  auto good = make_inputs(kSizes[1]);
  auto expect_refused = [&](auto change) {
    auto in = good;
    change(in);
    EXPECT_THROW(short_conv(in, select_best()), Error);
    EXPECT_THROW(short_conv(in, {}), Error);
  };
  expect_refused([](auto& in) { in.x = mx::zeros({2, 0, 7}); });
  expect_refused([](auto& in) { in.weight = mx::zeros({7, 1, 1}); });
  expect_refused([](auto& in) { in.weight = mx::zeros({7, 1, 3}); });
  expect_refused([](auto& in) { in.bias = mx::zeros({3}); });
  expect_refused([](auto& in) { in.state = mx::zeros({2, 3, 7}); });
  expect_refused([](auto& in) { in.lengths = mx::zeros({3}, mx::int32); });
}

}  // namespace
}  // namespace mlxx::kernels
