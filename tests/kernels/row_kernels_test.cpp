// Kernels that work row by row, against the plain operations that they replace.
#include <map>

#include <gtest/gtest.h>

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
      selections.push_back(Selection{
          .instruction_set = set,
          .threads = std::make_shared<ThreadPool>(threads)});
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

void expect_same_gradient(
    const mx::array& x,
    const Op& op,
    float bound = 5e-6f) {
  auto gradient = [&](const Selection& selection) {
    return mx::grad([&](const mx::array& input) {
      mx::array y = op(input, selection);
      return mx::sum(mx::multiply(y, mx::sin(mx::add(y, mx::array(1.0f)))));
    })(x);
  };
  mx::array expected = gradient({});
  std::map<InstructionSet, mx::array> on_one_thread;
  for (const auto& selection : all_selections()) {
    mx::array got = gradient(selection);
    EXPECT_LT(relative_error(got, expected), bound)
        << to_string(selection.instruction_set);
    auto one = on_one_thread.emplace(selection.instruction_set, got).first;
    EXPECT_TRUE(same_bits(got, one->second));
  }
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
    // Of one number what is left is a difference of two that are nearly equal.
    float bound = n == 1 ? 1e-3f : 5e-6f;
    expect_same_gradient(normal({2, n}, 3), op, bound);
    expect_same_gradient(normal({40, n}, 4), op, bound);
    expect_same_gradient(mx::transpose(normal({n, 40}, 5)), op, bound);
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
    expect_same_gradient(normal({40, 2 * n}, 4), op);
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
