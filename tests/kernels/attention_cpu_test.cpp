// The attention of the CPU against the plain operations that it replaces.
#include <gtest/gtest.h>

#include "mlxx/kernels/attention/attention_cpu.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

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

struct Inputs {
  mx::array queries;
  DenseView view;
};

// Keys and values that are part of a larger buffer, as a cache hands them out.
Inputs random_inputs(int batch, int heads, int length, int total, int size) {
  auto part = [&](uint64_t seed) {
    return mx::slice(
        normal({batch, 2, total + 9, size}, seed),
        {0, 0, 0, 0},
        {batch, 2, total, size});
  };
  return {normal({batch, heads, length, size}, 1), {part(2), part(3)}};
}

void expect_agreement(
    const Inputs& inputs,
    const AttentionOptions& options,
    float bound = 2e-6f) {
  mx::array expected = attention(inputs.queries, inputs.view, options);
  for (const auto& selection : all_selections()) {
    ASSERT_TRUE(
        attention_cpu_covers(inputs.queries, inputs.view, options, selection));
    mx::array got = attention(inputs.queries, inputs.view, options, selection);
    EXPECT_EQ(got.shape(), expected.shape());
    EXPECT_LT(relative_error(got, expected), bound)
        << to_string(selection.instruction_set);
    // A result that is laid out differently must still read right.
    EXPECT_TRUE(same_bits(mx::add(got, mx::array(0.0f)), mx::contiguous(got)));
  }
}

// [L, S]: what each query sees of the newest tokens.
mx::array window_mask(int length, int total, int window) {
  mx::array rows = mx::expand_dims(mx::arange(total - length, total), 1);
  mx::array columns = mx::expand_dims(mx::arange(total), 0);
  return mx::logical_and(
      mx::greater_equal(rows, columns),
      mx::less(rows, mx::add(columns, mx::array(window))));
}

constexpr std::pair<int, int> kLengths[] =
    {{1, 1}, {1, 17}, {1, 300}, {5, 5}, {33, 90}, {2, 3}};

TEST(AttentionKernel, AgreesWithMlxForPrefillAndDecode) {
  for (int size : {16, 64, 80, 128, 256}) {
    for (auto [length, total] : kLengths) {
      for (const char* mode : {"", "causal"}) {
        expect_agreement(
            random_inputs(2, 6, length, total, size),
            {.scale = 0.2f, .mask = {mode}});
      }
    }
  }
}

TEST(AttentionKernel, TakesMasksOfEveryShape) {
  for (auto [length, total] : kLengths) {
    Inputs inputs = random_inputs(2, 4, length, total, 32);
    mx::array window = window_mask(length, total, 7);
    for (const mx::Shape& shape :
         {mx::Shape{length, total},
          mx::Shape{1, length, total},
          mx::Shape{2, 1, length, total},
          mx::Shape{1, 4, 1, total},
          mx::Shape{2, 4, length, 1}}) {
      mx::array noise = normal(shape, 4);
      expect_agreement(inputs, {.scale = 0.2f, .mask = {"", noise}});
      mx::array seen = mx::logical_or(mx::greater(noise, mx::array(0)), window);
      expect_agreement(inputs, {.scale = 0.2f, .mask = {"", seen}});
    }
    expect_agreement(inputs, {.scale = 0.2f, .mask = {"", window}});
  }
}

TEST(AttentionKernel, TakesSoftcapsAndSinksWithEveryMask) {
  for (auto [length, total] : kLengths) {
    for (int heads : {2, 6}) {
      Inputs inputs = random_inputs(2, heads, length, total, 64);
      mx::array sinks = normal({heads}, 5) * mx::array(3.0f);
      mx::array window = window_mask(length, total, 20);
      for (const auto& mask :
           {AttentionMask{},
            AttentionMask{"causal"},
            AttentionMask{"", window},
            AttentionMask{"", mx::expand_dims(window, {0, 1})}}) {
        for (float softcap : {0.0f, 5.0f, 50.0f}) {
          expect_agreement(
              inputs,
              {.scale = 1.5f, .mask = mask, .softcap = softcap},
              1e-5f);
          expect_agreement(
              inputs,
              {.scale = 0.2f, .mask = mask, .softcap = softcap, .sinks = sinks},
              1e-5f);
        }
      }
    }
  }
}

// Written out for one head and one query.
TEST(AttentionKernel, ASinkTakesWeightAndGivesNothing) {
  mx::array q = mx::ones({1, 2, 1, 16});
  mx::array k = mx::ones({1, 2, 1, 16});
  mx::array v = mx::full({1, 2, 1, 16}, 8.0f);
  // One key of score 16 * 0.25 = 4, sinks as large and smaller by log(3).
  mx::array sinks({4.0f, 4.0f - std::log(3.0f)}, {2}, mx::float32);
  mx::array expected = mx::reshape(mx::array({4.0f, 6.0f}), {1, 2, 1, 1});
  for (auto selection : all_selections()) {
    mx::array got = attention(
        q,
        DenseView{k, v},
        {.scale = 0.25f, .sinks = sinks},
        selection);
    EXPECT_TRUE(mx::allclose(got, expected, 1e-5, 1e-5).item<bool>());
  }
}

TEST(AttentionKernel, ASoftcapIsAppliedBeforeTheMask) {
  mx::array q = mx::ones({1, 1, 1, 16});
  mx::array k = mx::concatenate(
      {mx::full({1, 1, 1, 16}, 10.0f), mx::full({1, 1, 1, 16}, 0.0f)},
      2);
  mx::array v = mx::concatenate(
      {mx::full({1, 1, 1, 16}, 1.0f), mx::full({1, 1, 1, 16}, 0.0f)},
      2);
  // Scores 160 and 0, of which a cap of 2 leaves 2 and 0; 3 is added to both.
  mx::array mask = mx::full({1, 2}, 3.0f);
  float expected = std::exp(2.0f) / (std::exp(2.0f) + 1);
  auto selections = all_selections();
  selections.push_back(Selection{});
  for (const auto& selection : selections) {
    mx::array got = attention(
        q,
        DenseView{k, v},
        {.scale = 1, .mask = {"", mask}, .softcap = 2},
        selection);
    EXPECT_NEAR(mx::max(got).item<float>(), expected, 1e-5);
  }
}

TEST(AttentionKernel, AQueryThatSeesNothingWeighsAllAlike) {
  Inputs inputs = random_inputs(1, 2, 2, 3, 16);
  bool seen[] = {true, false, true, false, false, false};
  mx::array mask(seen, {2, 3}, mx::bool_);
  expect_agreement(inputs, {.scale = 0.25f, .mask = {"", mask}});
}

TEST(AttentionKernel, LargeScoresStayFinite) {
  mx::array q = mx::full({1, 2, 1, 16}, 300.0f);
  mx::array k = mx::concatenate(
      {mx::full({1, 2, 1, 16}, 300.0f), mx::full({1, 2, 1, 16}, -300.0f)},
      2);
  mx::array v = normal({1, 2, 2, 16}, 3);
  for (const auto& selection : all_selections()) {
    mx::array y = attention(q, DenseView{k, v}, {.scale = 1}, selection);
    EXPECT_LT(
        relative_error(y, mx::slice(v, {0, 0, 0, 0}, {1, 2, 1, 16})),
        1e-6);
  }
}

TEST(AttentionKernel, GradientsAreThoseOfTheFallback) {
  Inputs inputs = random_inputs(1, 4, 3, 9, 16);
  mx::array sinks = normal({4}, 5);
  mx::array added = normal({1, 4, 3, 9}, 6);
  mx::array seen = window_mask(3, 9, 4);
  for (bool boolean : {false, true}) {
    for (float softcap : {0.0f, 3.0f}) {
      auto gradients = [&](const Selection& selection) {
        auto loss = [&](const std::vector<mx::array>& x) {
          mx::array y = attention(
              x[0],
              DenseView{x[1], x[2]},
              {.scale = 0.25f,
               .mask = {"", boolean ? seen : added},
               .softcap = softcap,
               .sinks = x[3]},
              selection);
          return mx::sum(mx::multiply(y, mx::sin(y + mx::array(1.0f))));
        };
        return mx::grad(loss, {0, 1, 2, 3})(
            {inputs.queries, inputs.view.keys, inputs.view.values, sinks});
      };
      auto got = gradients(select_best());
      auto expected = gradients({});
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_LT(relative_error(got[i], expected[i]), 1e-4)
            << i << " " << boolean << " " << softcap;
      }
    }
  }
}

// A query alone, in a prompt, and in any part of it, however the mask is told.
TEST(AttentionKernel, AQueryHasTheSameBitsInEveryCompany) {
  constexpr int kLength = 70;
  mx::array q = normal({2, 4, kLength, 64}, 1);
  mx::array k = normal({2, 2, kLength, 64}, 2);
  mx::array v = normal({2, 2, kLength, 64}, 3);
  AttentionOptions options{
      .scale = 0.125f,
      .softcap = 4,
      .sinks = normal({4}, 4)};
  auto tokens = [](const mx::array& a, int row, int from, int to) {
    return mx::slice(
        a,
        {row, 0, from, 0},
        {row + 1, a.shape(1), to, a.shape(3)});
  };
  for (InstructionSet set : available_instruction_sets()) {
    Selection many{
        .instruction_set = set,
        .threads = std::make_shared<ThreadPool>(3)};
    Selection one{
        .instruction_set = set,
        .threads = std::make_shared<ThreadPool>(1)};
    options.mask = {"causal"};
    mx::array whole = attention(q, DenseView{k, v}, options, many);
    for (auto [from, to] : {std::pair{0, 1}, {69, 70}, {20, 45}}) {
      DenseView seen{tokens(k, 1, 0, to), tokens(v, 1, 0, to)};
      for (const auto& mask :
           {AttentionMask{to - from > 1 ? "causal" : ""},
            AttentionMask{"", window_mask(to - from, to, to)}}) {
        options.mask = mask;
        mx::array part = attention(tokens(q, 1, from, to), seen, options, one);
        EXPECT_TRUE(same_bits(part, tokens(whole, 1, from, to)))
            << to_string(set) << " " << from << " " << to;
      }
    }
  }
}

TEST(AttentionKernel, LeavesOtherDtypesToThePlainOperations) {
  Inputs inputs = random_inputs(1, 2, 1, 5, 32);
  mx::array half = mx::astype(inputs.queries, mx::float16);
  EXPECT_FALSE(attention_cpu_covers(half, inputs.view, {}, select_best()));
  AttentionOptions halves{.mask = {"", mx::zeros({1, 5}, mx::float16)}};
  EXPECT_FALSE(
      attention_cpu_covers(inputs.queries, inputs.view, halves, select_best()));
  EXPECT_LT(
      relative_error(
          attention(inputs.queries, inputs.view, halves, select_best()),
          attention(inputs.queries, inputs.view, {})),
      1e-6);
}

}  // namespace
}  // namespace mlxx::kernels
