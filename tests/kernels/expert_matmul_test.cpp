#include "mlxx/kernels/expert_matmul/expert_matmul.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/kernels/expert_matmul/expert_panels.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

constexpr int kExperts = 5;

struct Form {
  const char* name;
  std::optional<QuantizationSpec> quantization;
};

const Form kForms[] = {
    {"dense", std::nullopt},
    {"affine 4", QuantizationSpec{64, 4, "affine"}},
    {"affine 8", QuantizationSpec{32, 8, "affine"}},
    {"mxfp4", QuantizationSpec{32, 4, "mxfp4"}},
    {"nvfp4", QuantizationSpec{16, 4, "nvfp4"}},
};

struct Stack {
  Parameter plain;
  Parameter packed;
  mx::array dense;  // what both stand for, [experts, out, in] float32
};

Stack make_stack(
    const Form& form,
    int out,
    int in,
    const Selection& selection,
    mx::Dtype dtype = mx::float32) {
  mx::Shape shape{kExperts, out, in};
  mx::array dense = mx::astype(normal(shape, 17), dtype);
  WeightArrays arrays{dense, std::nullopt, std::nullopt};
  if (form.quantization) {
    const auto& q = *form.quantization;
    auto parts = mx::quantize(dense, q.group_size, q.bits, q.mode);
    mx::eval(parts);
    arrays = {
        parts[0],
        parts[1],
        parts.size() > 2 ? std::optional(parts[2]) : std::nullopt};
    dense = mx::dequantize(
        arrays.weight,
        *arrays.scales,
        arrays.biases,
        q.group_size,
        q.bits,
        q.mode,
        std::nullopt,
        mx::float32);
  }
  Parameter parameter(shape, Parameter::Kind::matrix);
  parameter.set(arrays, form.quantization);
  Stack stack{parameter, parameter, mx::astype(dense, mx::float32)};
  auto packed = pack_experts(arrays, form.quantization, selection);
  if (packed) {
    stack.packed.set_packed(packed);
  }
  return stack;
}

Selection select_fallback() {
  Selection selection;
  selection.fallback = true;
  return selection;
}

Selection select_with(InstructionSet set, int threads) {
  Selection selection = select_best();
  selection.instruction_set = set;
  selection.threads = std::make_shared<ThreadPool>(threads);
  return selection;
}

mx::array choices(const mx::Shape& shape, int seed) {
  return mx::random::randint(
      0,
      kExperts,
      shape,
      mx::uint32,
      mx::random::key(seed));
}

// One product for each expert, from which the wanted rows are taken.
mx::array
expected_rows(const mx::array& x, const Stack& stack, const mx::array& ids) {
  std::vector<mx::array> rows;
  mx::array flat = mx::reshape(ids, {-1});
  for (int i = 0; i < flat.shape(0); ++i) {
    int expert = mx::slice(flat, {i}, {i + 1}).item<int>();
    mx::array matrix = mx::take(stack.dense, expert, 0);
    rows.push_back(mx::matmul(
        mx::slice(x, {i, 0}, {i + 1, x.shape(1)}),
        mx::transpose(matrix)));
  }
  return mx::concatenate(rows, 0);
}

TEST(ExpertMatmul, FallbackIsMlxsGatheredProduct) {
  for (const Form& form : kForms) {
    for (auto dtype : {mx::float32, mx::bfloat16}) {
      if (!form.quantization && dtype != mx::float32) {
        continue;  // MLX has none on the CPU
      }
      Stack stack = make_stack(form, 40, 64, select_fallback(), dtype);
      ASSERT_FALSE(stack.packed.packed());
      const auto& arrays = stack.plain.arrays();
      for (bool sorted : {false, true}) {
        mx::array ids = choices({70}, 3);
        ids = sorted ? mx::sort(ids) : ids;
        mx::array x = mx::astype(normal({70, 1, 64}, 4), dtype);
        mx::array expected = form.quantization
            ? mx::gather_qmm(
                  x,
                  arrays.weight,
                  *arrays.scales,
                  arrays.biases,
                  std::nullopt,
                  ids,
                  true,
                  form.quantization->group_size,
                  form.quantization->bits,
                  form.quantization->mode,
                  std::nullopt,
                  sorted)
            : mx::gather_mm(
                  x,
                  mx::swapaxes(arrays.weight, -1, -2),
                  std::nullopt,
                  ids,
                  sorted);
        EXPECT_TRUE(
            same_bits(expert_matmul(x, stack.packed, ids, sorted), expected))
            << form.name;
      }
    }
  }
}

TEST(ExpertMatmul, FallbackComputesHalfPrecisionExpertsToo) {
  for (auto dtype : {mx::float16, mx::bfloat16}) {
    Stack stack = make_stack(kForms[0], 24, 64, select_fallback(), dtype);
    mx::array x = mx::astype(normal({9, 1, 64}, 4), dtype);
    mx::array ids = choices({9}, 3);
    mx::array y = expert_matmul(x, stack.plain, ids, false);
    EXPECT_EQ(y.dtype(), dtype);
    mx::array wide = mx::astype(mx::squeeze(x, 1), mx::float32);
    EXPECT_LT(
        relative_error(mx::squeeze(y, 1), expected_rows(wide, stack, ids)),
        5e-3);
  }
}

TEST(ExpertMatmul, AgreesWithEachExpertsProduct) {
  for (InstructionSet set : available_instruction_sets()) {
    for (auto activations :
         {ActivationForm::float32,
          ActivationForm::int16,
          ActivationForm::int8}) {
      Selection selection = select_with(set, 2);
      selection.activations = activations;
      float bound = activations == ActivationForm::int8 ? 2e-2f : 1e-4f;
      for (const Form& form : kForms) {
        for (int out : {8, 72}) {
          Stack stack = make_stack(form, out, 128, selection);
          ASSERT_TRUE(stack.packed.packed());
          for (int rows : {1, 7, 80}) {
            mx::array x = normal({rows, 128}, rows);
            mx::array ids = choices({rows}, rows + 1);
            mx::array y =
                expert_matmul(mx::expand_dims(x, 1), stack.packed, ids, false);
            EXPECT_LT(
                relative_error(mx::squeeze(y, 1), expected_rows(x, stack, ids)),
                bound)
                << to_string(set) << ", " << form.name << ", " << rows;
          }
        }
      }
    }
  }
}

TEST(ExpertMatmul, LeadingAxesBroadcastAsInMlx) {
  Stack stack = make_stack(kForms[0], 24, 64, select_best());
  struct Case {
    mx::Shape x;
    mx::Shape indices;
  };
  for (const Case& c :
       {Case{{2, 3, 1, 1, 64}, {2, 3, 4}},
        Case{{2, 3, 4, 1, 64}, {2, 3, 4}},
        Case{{3, 2, 64}, {2, 3}},
        Case{{1, 64}, {7}},
        Case{{2, 1, 5, 64}, {1, 3}}}) {
    mx::array x = normal(c.x, 1);
    mx::array ids = choices(c.indices, 2);
    mx::array expected = expert_matmul(x, stack.plain, ids, false);
    mx::array y = expert_matmul(x, stack.packed, ids, false);
    EXPECT_EQ(y.shape(), expected.shape());
    EXPECT_LT(relative_error(y, expected), 1e-5);
  }
  // Views that are no contiguous rows of numbers.
  mx::array x = mx::swapaxes(normal({4, 3, 1, 64}, 1), 0, 1);
  mx::array ids = mx::swapaxes(choices({4, 3}, 2), 0, 1);
  EXPECT_LT(
      relative_error(
          expert_matmul(x, stack.packed, ids, false),
          expert_matmul(x, stack.plain, ids, false)),
      1e-5);
}

// Alone, in any batch, whatever the other rows' experts are.
TEST(ExpertMatmul, ARowHasTheSameBitsInEveryCompany) {
  for (InstructionSet set : available_instruction_sets()) {
    for (const Form& form : kForms) {
      std::optional<mx::array> expected;
      mx::array x = normal({50, 1, 1088}, 6);
      mx::array ids = choices({50}, 7);
      for (int threads : {1, 3}) {
        Selection selection = select_with(set, threads);
        Stack stack = make_stack(form, 72, 1088, selection, mx::bfloat16);
        mx::array all = expert_matmul(x, stack.packed, ids, false);
        if (!expected) {
          expected = all;
        }
        EXPECT_TRUE(same_bits(all, *expected)) << form.name << threads;
        for (auto [from, to] : {std::pair{0, 1}, {49, 50}, {17, 19}, {3, 40}}) {
          mx::array part = expert_matmul(
              mx::slice(x, {from, 0, 0}, {to, 1, 1088}),
              stack.packed,
              mx::slice(ids, {from}, {to}),
              false);
          EXPECT_TRUE(
              same_bits(part, mx::slice(*expected, {from, 0, 0}, {to, 1, 72})))
              << to_string(set) << ", " << form.name << " rows " << from;
        }
      }
    }
  }
}

TEST(ExpertMatmul, GradientIsThatOfTheFallback) {
  for (const Form& form : {kForms[0], kForms[1]}) {
    Stack stack = make_stack(form, 24, 64, select_best());
    // Both broadcast: each token goes to two experts.
    mx::array x = normal({3, 1, 1, 64}, 1);
    mx::array ids = choices({3, 2}, 2);
    auto gradient = [&](const Parameter& experts) {
      return mx::grad([&](const mx::array& input) {
        mx::array y = expert_matmul(input, experts, ids, false);
        return mx::sum(mx::multiply(y, normal(y.shape(), 3)));
      })(x);
    };
    EXPECT_LT(
        relative_error(gradient(stack.packed), gradient(stack.plain)),
        1e-5);
  }
}

TEST(ExpertMatmul, GradientIsTheDerivative) {
  Selection selection = select_best();
  selection.activations = ActivationForm::float32;
  Stack stack = make_stack(kForms[0], 24, 64, selection);
  mx::array ids = choices({4}, 2);
  EXPECT_TRUE(check_gradient(
      [&](const std::vector<mx::array>& inputs) {
        return std::vector{expert_matmul(inputs[0], stack.packed, ids, false)};
      },
      {normal({4, 1, 64}, 1)}));
}

TEST(ExpertMatmul, AnExpertThatIsNotThereGivesNoNumbers) {
  Stack stack = make_stack(kForms[0], 8, 64, select_best());
  mx::array x = normal({3, 1, 64}, 1);
  mx::array y = expert_matmul(
      x,
      stack.packed,
      mx::array({kExperts, 1, -1}, mx::int32),
      false);
  int none[] = {0, 2};
  EXPECT_TRUE(
      mx::all(mx::isnan(mx::take(y, mx::array(none, {2}), 0))).item<bool>());
  EXPECT_TRUE(mx::all(mx::isfinite(mx::take(y, 1, 0))).item<bool>());
}

TEST(ExpertMatmul, AxesThatDoNotFitAreErrors) {
  Stack stack = make_stack(kForms[0], 8, 64, select_best());
  mx::array ids = choices({3}, 1);
  EXPECT_THROW(
      expert_matmul(normal({3, 1, 32}, 1), stack.packed, ids, false),
      Error);
  EXPECT_THROW(
      expert_matmul(normal({3, 1, 64}, 1), stack.plain, normal({3}, 1), false),
      Error);
  EXPECT_THROW(stack.packed.packed()->matmul(normal({3, 64}, 1)), Error);
  EXPECT_THROW(stack.packed.packed()->take_rows(ids), Error);
  Parameter matrix({8, 64}, Parameter::Kind::matrix);
  matrix.set({normal({8, 64}, 1), std::nullopt, std::nullopt});
  EXPECT_THROW(expert_matmul(normal({3, 1, 64}, 1), matrix, ids, false), Error);
}

TEST(PackExperts, RestoresMlxsForm) {
  for (const Form& form : kForms) {
    Stack stack = make_stack(form, 40, 128, select_best());
    const auto& before = stack.plain.arrays();
    WeightArrays after = stack.packed.restore();
    EXPECT_TRUE(same_bits(before.weight, after.weight)) << form.name;
    ASSERT_EQ(before.scales.has_value(), after.scales.has_value());
    ASSERT_EQ(before.biases.has_value(), after.biases.has_value());
    if (before.scales) {
      EXPECT_TRUE(mx::array_equal(*before.scales, *after.scales).item<bool>());
    }
    if (before.biases) {
      EXPECT_TRUE(mx::array_equal(*before.biases, *after.biases).item<bool>());
    }
  }
}

TEST(PackExperts, LeavesWhatPanelsDoNotCover) {
  mx::array narrow = normal({3, 8, 40}, 1);
  auto pack = [](const mx::array& dense, const Selection& selection) {
    return pack_experts(
        {dense, std::nullopt, std::nullopt},
        std::nullopt,
        selection);
  };
  EXPECT_EQ(pack(narrow, select_best()), nullptr);
  EXPECT_EQ(pack(normal({8, 64}, 1), select_best()), nullptr);
  EXPECT_EQ(pack(normal({3, 8, 64}, 1), select_fallback()), nullptr);
  auto packed = pack(normal({3, 8, 64}, 1), select_best());
  ASSERT_TRUE(packed);
  // One panel of 32 rows for each expert.
  EXPECT_EQ(packed->nbytes(), 3u * 32 * 64 * 4);
}

TEST(RowGroups, KeepTheOrderOfAnExpertsRows) {
  std::vector<int32_t> experts = {2, 0, 2, -1, 0, 4, 7, 2};
  RowGroups rows(experts, 5);
  EXPECT_EQ(rows.order(), (std::vector<int64_t>{1, 4, 0, 2, 7, 5}));
  EXPECT_EQ(rows.unrouted(), (std::vector<int64_t>{3, 6}));
  ASSERT_EQ(rows.groups().size(), 3u);
  EXPECT_EQ(rows.groups()[1].expert, 2);
  EXPECT_EQ(rows.groups()[1].first, 2);
  EXPECT_EQ(rows.groups()[1].count, 3);
}

}  // namespace
}  // namespace mlxx::kernels
