// mxfp4, nvfp4 and mxfp8 in panels.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mlxx/kernels/quantized_matmul/packed_panels.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

const QuantizationSpec kSpecs[] = {
    {32, 4, "mxfp4"},
    {16, 4, "nvfp4"},
    {32, 8, "mxfp8"},
};
constexpr ActivationForm kForms[] = {
    ActivationForm::float32,
    ActivationForm::int16,
    ActivationForm::int8,
};

mx::array dequantize(const WeightArrays& arrays, const QuantizationSpec& spec) {
  return mx::dequantize(
      arrays.weight,
      *arrays.scales,
      std::nullopt,
      spec.group_size,
      spec.bits,
      spec.mode,
      std::nullopt,
      mx::float32);
}

WeightArrays quantize(const mx::array& dense, const QuantizationSpec& spec) {
  auto parts = mx::quantize(dense, spec.group_size, spec.bits, spec.mode);
  mx::eval(parts);
  return {parts[0], parts[1], std::nullopt};
}

// Every code with every scale: rows are scales, each with all codes in turn;
// zero instead of E4M3's code for no number, if they are to be summed.
WeightArrays every_code(const QuantizationSpec& spec, bool summed) {
  constexpr int kIn = 256;
  std::vector<uint32_t> words(256 * kIn * spec.bits / 32);
  int per_word = 32 / spec.bits;
  for (size_t w = 0; w < words.size(); ++w) {
    for (int i = 0; i < per_word; ++i) {
      uint32_t code = (w * per_word + i) % kIn % (1u << spec.bits);
      if (summed && spec.bits == 8 && code % 128 == 127) {
        code = 0;
      }
      words[w] |= code << (i * spec.bits);
    }
  }
  int groups = kIn / spec.group_size;
  std::vector<uint8_t> scales(256 * groups);
  for (int row = 0; row < 256; ++row) {
    for (int g = 0; g < groups; ++g) {
      scales[row * groups + g] = static_cast<uint8_t>(row + g);
    }
  }
  return {
      mx::array(words.data(), {256, kIn * spec.bits / 32}, mx::uint32),
      mx::array(scales.data(), {256, groups}, mx::uint8),
      std::nullopt};
}

TEST(FloatingCodes, EveryCodeAndScaleIsMlxs) {
  for (const auto& spec : kSpecs) {
    WeightArrays arrays = every_code(spec, false);
    auto packed = pack_quantized(arrays, spec, select_best());
    ASSERT_TRUE(packed);
    mx::array expected = dequantize(arrays, spec);
    EXPECT_TRUE(mx::array_equal(
                    packed->take_rows(mx::arange(256)),
                    expected,
                    /* equal_nan= */ true)
                    .item<bool>())
        << spec.mode;
    WeightArrays after = packed->restore();
    EXPECT_TRUE(same_bits(after.weight, arrays.weight));
    EXPECT_TRUE(same_bits(*after.scales, *arrays.scales));
    EXPECT_FALSE(after.biases);
  }
}

// One input of one and zeros: the product is a column of the matrix, in every
// form exactly, because one is the largest number of its chunk.
TEST(FloatingCodes, KernelsReadEveryCodeAndScaleAlike) {
  for (const auto& spec : kSpecs) {
    WeightArrays arrays = every_code(spec, true);
    // A column is zero times infinity elsewhere where a scale is infinite.
    mx::array dense = dequantize(arrays, spec);
    mx::array finite = mx::all(mx::isfinite(dense), 1);
    // Products of bytes with a scale near the largest float overflow.
    mx::array small = mx::all(mx::less(mx::abs(dense), mx::array(1e30f)), 1);
    mx::array checked = mx::logical_and(finite, small);
    ASSERT_GT(mx::sum(checked).item<int>(), 150);
    for (InstructionSet set : available_instruction_sets()) {
      for (ActivationForm form : kForms) {
        Selection selection{
            .instruction_set = set,
            .threads = std::make_shared<ThreadPool>(2),
            .activations = form};
        auto packed = pack_quantized(arrays, spec, selection);
        for (int rows : {1, 3}) {
          for (int column : {0, 3, 15, 16, 31, 130, 255}) {
            mx::array x = mx::astype(
                mx::equal(mx::arange(256), mx::array(column)),
                mx::float32);
            x = mx::contiguous(mx::broadcast_to(x, {rows, 256}));
            mx::array y = mx::take(packed->matmul(x), rows - 1, 0);
            mx::array expected = mx::take(dense, column, 1);
            mx::array error = mx::abs(mx::subtract(y, expected));
            mx::array bound = mx::add(
                mx::multiply(mx::abs(expected), mx::array(1e-6f)),
                mx::array(1e-37f));
            mx::array right = mx::logical_or(
                mx::less_equal(error, bound),
                mx::logical_not(checked));
            EXPECT_TRUE(mx::all(right).item<bool>()) << fmt::format(
                "{} {} {} rows {} column {}",
                spec.mode,
                to_string(set),
                to_string(form),
                rows,
                column);
          }
        }
      }
    }
  }
}

TEST(FloatingCodes, ProductsAgreeWithDequantizedOnesInEveryForm) {
  for (const auto& spec : kSpecs) {
    WeightArrays arrays = quantize(normal({72, 4160}, 3), spec);
    mx::array dense = mx::transpose(dequantize(arrays, spec));
    mx::array x = normal({14, 4160}, 5);
    mx::array expected = mx::matmul(x, dense);
    for (InstructionSet set : available_instruction_sets()) {
      for (ActivationForm form : kForms) {
        Selection selection{
            .instruction_set = set,
            .threads = std::make_shared<ThreadPool>(2),
            .activations = form};
        auto packed = pack_quantized(arrays, spec, selection);
        mx::array all = packed->matmul(x);
        EXPECT_LT(
            relative_error(all, expected),
            form == ActivationForm::int8 ? 1e-2 : 1e-4)
            << spec.mode << to_string(set) << to_string(form);
        for (auto [from, to] : {std::pair{0, 1}, {13, 14}, {2, 4}, {3, 12}}) {
          EXPECT_TRUE(same_bits(
              packed->matmul(mx::slice(x, {from, 0}, {to, 4160})),
              mx::slice(all, {from, 0}, {to, 72})))
              << spec.mode << to_string(set) << to_string(form) << from;
        }
      }
    }
  }
}

// 4.25 and 4.5 bits per weight, as in MLX's form.
TEST(FloatingCodes, PanelsAreNoLargerThanMlxsForm) {
  for (const auto& spec : kSpecs) {
    WeightArrays arrays = quantize(normal({64, 256}, 1), spec);
    auto packed = pack_quantized(arrays, spec, select_best());
    EXPECT_EQ(
        packed->nbytes(),
        arrays.weight.nbytes() + arrays.scales->nbytes());
  }
}

TEST(FloatingCodes, RowsOfNoWholeChunksStayInMlxsForm) {
  QuantizationSpec spec{16, 4, "nvfp4"};
  WeightArrays arrays = quantize(normal({8, 48}, 1), spec);
  EXPECT_EQ(pack_quantized(arrays, spec, select_best()), nullptr);
}

}  // namespace
}  // namespace mlxx::kernels
