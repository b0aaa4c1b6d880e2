// Kernels that work row by row, against the plain operations that they replace.
#include <gtest/gtest.h>

#include "mlxx/kernels/attention/attention.h"
#include "mlxx/kernels/rms_norm/rms_norm.h"
#include "mlxx/kernels/rope/rope.h"
#include "mlxx/kernels/swiglu/swiglu.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

using Op = std::function<mx::array(const mx::array&, const Selection&)>;

std::vector<Selection> all_selections() {
  std::vector<Selection> selections;
  for (InstructionSet set : available_instruction_sets()) {
    for (int threads : {1, 3}) {
      selections.push_back({false, set, std::make_shared<ThreadPool>(threads)});
    }
  }
  return selections;
}

void expect_agreement(const mx::array& x, const Op& op, float bound) {
  for (const auto& selection : all_selections()) {
    mx::array got = op(x, selection);
    mx::array expected = op(x, Selection{});
    EXPECT_EQ(got.shape(), expected.shape());
    EXPECT_LT(relative_error(got, expected), bound)
        << to_string(selection.instruction_set);
    // A result that is laid out differently must still read right.
    EXPECT_TRUE(same_bits(mx::add(got, mx::array(0.0f)), mx::contiguous(got)));
  }
}

void expect_same_gradient(const mx::array& x, const Op& op) {
  auto gradient = [&](const Selection& selection) {
    return mx::grad([&](const mx::array& input) {
      mx::array y = op(input, selection);
      return mx::sum(mx::multiply(y, mx::sin(mx::add(y, mx::array(1.0f)))));
    })(x);
  };
  EXPECT_LT(relative_error(gradient(select_best()), gradient({})), 1e-4);
}

TEST(RmsNorm, AgreesWithMlxForAllWidths) {
  for (int n : {1, 7, 16, 31, 64, 576}) {
    mx::array weight = normal({n}, 2);
    Op op = [&](const mx::array& x, const Selection& selection) {
      return rms_norm(x, weight, 1e-5f, selection);
    };
    expect_agreement(normal({2, 3, n}, 1), op, 2e-6f);
    expect_agreement(normal({1, 40, n}, 1), op, 2e-6f);
    expect_agreement(mx::transpose(normal({n, 5}, 1)), op, 2e-6f);
    expect_same_gradient(normal({2, n}, 3), op);
  }
}

TEST(Swiglu, AgreesWithMlxForAllWidths) {
  for (int n : {1, 7, 16, 33, 96}) {
    Op op = [n](const mx::array& x, const Selection& selection) {
      auto parts = mx::split(x, 2, -1);
      return swiglu(parts[0], parts[1], selection);
    };
    expect_agreement(normal({2, 3, 2 * n}, 1), op, 2e-6f);
    expect_agreement(normal({1, 40, 2 * n}, 1), op, 2e-6f);
    expect_same_gradient(normal({2, 2 * n}, 3), op);
  }
}

TEST(Swiglu, LargeInputsNeitherOverflowNorVanish) {
  float values[] = {-1e30f, -200, -90, -1, 0, 1, 90, 200, 1e30f};
  mx::array gate(values, {1, 9}, mx::float32);
  mx::array up = mx::ones({1, 9});
  for (const auto& selection : all_selections()) {
    mx::array y = swiglu(gate, up, selection);
    EXPECT_TRUE(mx::allclose(
                    y,
                    mx::array(
                        {0.f,
                         0.f,
                         0.f,
                         -0.26894142f,
                         0.f,
                         0.73105858f,
                         90.f,
                         200.f,
                         1e30f},
                        {1, 9}),
                    1e-5,
                    1e-6)
                    .item<bool>());
  }
}

TEST(Rope, AgreesWithMlx) {
  for (int size : {4, 16, 64, 80}) {
    for (int dims : {2, size / 2, size}) {
      for (int offset : {0, 3, 1000}) {
        RopeAngles plain{
            .dims = dims,
            .traditional = false,
            .base = 10000.0f,
            .wavelengths = std::nullopt,
            .position_scale = 0.5f};
        RopeAngles given = plain;
        given.base = std::nullopt;
        given.wavelengths =
            mx::add(mx::abs(normal({dims / 2}, 5)), mx::array(1.0f));
        for (const auto& angles : {plain, given}) {
          Op op = [&](const mx::array& x, const Selection& selection) {
            return rope(x, angles, offset, selection);
          };
          expect_agreement(normal({2, 3, 5, size}, 1), op, 1e-4f);
          // As split_heads() leaves it.
          mx::array heads =
              mx::transpose(normal({1, 30, 3, size}, 2), {0, 2, 1, 3});
          expect_agreement(heads, op, 1e-4f);
          expect_agreement(
              mx::swapaxes(normal({1, 2, size, 3}, 2), -1, -2),
              op,
              1e-4f);
        }
      }
    }
  }
  RopeAngles angles{
      .dims = 16,
      .traditional = false,
      .base = 10000.0f,
      .wavelengths = std::nullopt};
  expect_same_gradient(
      normal({1, 2, 3, 16}, 1),
      [&](const mx::array& x, const Selection& selection) {
        return rope(x, angles, 7, selection);
      });
}

TEST(AttentionKernel, AgreesWithMlxForPrefillAndDecode) {
  for (int size : {16, 64, 80, 128}) {
    for (auto [L, S] :
         {std::pair{1, 1}, {1, 17}, {1, 300}, {5, 5}, {33, 90}, {2, 3}}) {
      // A part of a larger buffer, as a cache hands it out.
      mx::array keys = mx::slice(
          normal({2, 2, S + 9, size}, 2),
          {0, 0, 0, 0},
          {2, 2, S, size});
      mx::array values = mx::slice(
          normal({2, 2, S + 9, size}, 3),
          {0, 0, 0, 0},
          {2, 2, S, size});
      for (std::string mode : {"", "causal"}) {
        Op op = [&](const mx::array& x, const Selection& selection) {
          return attention(
              x,
              DenseView{keys, values},
              0.2f,
              {mode, std::nullopt},
              selection);
        };
        expect_agreement(normal({2, 6, L, size}, 1), op, 2e-6f);
      }
    }
  }
}

TEST(AttentionKernel, GradientIsThatOfTheFallback) {
  mx::array keys = normal({1, 2, 9, 16}, 2);
  expect_same_gradient(
      normal({1, 4, 3, 16}, 1),
      [&](const mx::array& x, const Selection& selection) {
        return attention(
            x,
            DenseView{keys, keys},
            0.25f,
            {"causal", std::nullopt},
            selection);
      });
}

TEST(AttentionKernel, LargeScoresStayFinite) {
  mx::array q = mx::full({1, 2, 1, 16}, 300.0f);
  mx::array k = mx::concatenate(
      {mx::full({1, 2, 1, 16}, 300.0f), mx::full({1, 2, 1, 16}, -300.0f)},
      2);
  mx::array v = normal({1, 2, 2, 16}, 3);
  for (const auto& selection : all_selections()) {
    mx::array y =
        attention(q, DenseView{k, v}, 1.0f, {"", std::nullopt}, selection);
    EXPECT_LT(
        relative_error(y, mx::slice(v, {0, 0, 0, 0}, {1, 2, 1, 16})),
        1e-6);
  }
}

// A query alone, in a prompt, and in any part of it.
TEST(AttentionKernel, AQueryHasTheSameBitsInEveryCompany) {
  constexpr int kLength = 70;
  mx::array q = normal({2, 4, kLength, 64}, 1);
  mx::array k = normal({2, 2, kLength, 64}, 2);
  mx::array v = normal({2, 2, kLength, 64}, 3);
  auto tokens = [](const mx::array& a, int row, int from, int to) {
    return mx::slice(
        a,
        {row, 0, from, 0},
        {row + 1, a.shape(1), to, a.shape(3)});
  };
  for (InstructionSet set : available_instruction_sets()) {
    Selection many{false, set, std::make_shared<ThreadPool>(3)};
    Selection one{false, set, std::make_shared<ThreadPool>(1)};
    mx::array whole =
        attention(q, DenseView{k, v}, 0.125f, {"causal", std::nullopt}, many);
    for (auto [from, to] : {std::pair{0, 1}, {69, 70}, {20, 45}}) {
      DenseView seen{tokens(k, 1, 0, to), tokens(v, 1, 0, to)};
      mx::array part = attention(
          tokens(q, 1, from, to),
          seen,
          0.125f,
          {to - from > 1 ? "causal" : "", std::nullopt},
          one);
      EXPECT_TRUE(same_bits(part, tokens(whole, 1, from, to)))
          << to_string(set) << " " << from << " " << to;
    }
  }
}

TEST(RowKernels, HalfPrecisionIsLeftToMlx) {
  for (auto dtype : {mx::float16, mx::bfloat16}) {
    mx::array x = mx::astype(normal({3, 32}, 1), dtype);
    mx::array w = mx::astype(normal({32}, 2), dtype);
    Selection best = select_best();
    EXPECT_TRUE(
        same_bits(rms_norm(x, w, 1e-5f, best), rms_norm(x, w, 1e-5f, {})));
    EXPECT_TRUE(same_bits(swiglu(x, x, best), swiglu(x, x, {})));
  }
}

}  // namespace
}  // namespace mlxx::kernels
