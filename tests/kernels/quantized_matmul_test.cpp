#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

#include <climits>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/core/borrowed_array.h"
#include "mlxx/kernels/cpu_variants.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

struct Case {
  int bits;
  int group_size;
  const char* mode;
};

const Case kCases[] = {
    {2, 64, "affine"},
    {3, 64, "affine"},
    {4, 32, "affine"},
    {4, 64, "affine"},
    {4, 128, "affine"},
    {5, 64, "affine"},
    {6, 64, "affine"},
    {8, 32, "affine"},
    {8, 64, "affine"},
    {8, 128, "affine"},
    {4, 32, "mxfp4"},
    {4, 16, "nvfp4"},
    {8, 32, "mxfp8"},
};

Selection select_fallback() {
  Selection selection;
  selection.fallback = true;
  return selection;
}

struct Matrix {
  Parameter plain;   // MLX's form
  Parameter packed;  // what pack_quantized() makes resident
};

Matrix make_matrix(
    const Case& c,
    int out,
    int in,
    mx::Dtype dtype,
    const Selection& selection = select_best()) {
  mx::array dense = mx::astype(normal({out, in}, 17), dtype);
  auto parts = mx::quantize(dense, c.group_size, c.bits, c.mode);
  mx::eval(parts);
  WeightArrays arrays{
      parts[0],
      parts[1],
      parts.size() > 2 ? std::optional(parts[2]) : std::nullopt};
  QuantizationSpec spec{c.group_size, c.bits, c.mode};
  Matrix matrix;
  matrix.plain = Parameter({out, in}, Parameter::Kind::matrix);
  matrix.packed = matrix.plain;
  matrix.plain.set(arrays, spec);
  matrix.packed.set(arrays, spec);
  auto packed = pack_quantized(arrays, spec, selection);
  if (packed) {
    matrix.packed.set_packed(packed);
  }
  return matrix;
}

std::string describe(const Case& c, int rows, int out, int in) {
  return fmt::format(
      "{} bits, groups of {}, {}: {} x {} x {}",
      c.bits,
      c.group_size,
      c.mode,
      rows,
      out,
      in);
}

// Wrong for one size only is how such kernels fail: sizes on both sides of
// every block and vector length.
TEST(QuantizedMatmul, AgreesWithDequantizedProductForAllSizes) {
  for (const Case& c : kCases) {
    for (int in : {128, 384}) {
      for (int out : {4, 8, 33, 72}) {
        Matrix matrix = make_matrix(c, out, in, mx::float32);
        const auto& arrays = matrix.plain.arrays();
        mx::array dense = mx::dequantize(
            arrays.weight,
            *arrays.scales,
            arrays.biases,
            c.group_size,
            c.bits,
            c.mode,
            std::nullopt,
            mx::float32);
        for (int rows : {1, 2, 7, 8, 15, 16, 31, 33}) {
          mx::array x = normal({1, rows, in}, rows);
          mx::array expected = mx::matmul(x, mx::transpose(dense));
          EXPECT_LT(
              relative_error(quantized_matmul(x, matrix.packed), expected),
              1e-4)
              << describe(c, rows, out, in);
        }
      }
    }
  }
}

TEST(QuantizedMatmul, AgreesForManyRowsAndWideOutputs) {
  for (const Case& c : {kCases[2], kCases[8]}) {
    Matrix matrix = make_matrix(c, 2048, 256, mx::float32);
    mx::array x = normal({720, 256}, 4);
    EXPECT_LT(
        relative_error(
            quantized_matmul(x, matrix.packed),
            quantized_matmul(x, matrix.plain)),
        1e-4);
  }
}

TEST(QuantizedMatmul, HalfPrecisionScalesGiveFullPrecisionProducts) {
  for (auto dtype : {mx::float16, mx::bfloat16}) {
    Matrix matrix = make_matrix({4, 64, "affine"}, 64, 256, dtype);
    const auto& arrays = matrix.plain.arrays();
    mx::array dense = mx::dequantize(
        arrays.weight,
        mx::astype(*arrays.scales, mx::float32),
        mx::astype(*arrays.biases, mx::float32),
        64,
        4);
    mx::array x = normal({3, 256}, 2);
    EXPECT_LT(
        relative_error(
            quantized_matmul(x, matrix.packed),
            mx::matmul(x, mx::transpose(dense))),
        1e-4);
    EXPECT_EQ(
        quantized_matmul(mx::astype(x, dtype), matrix.packed).dtype(),
        dtype);
  }
}

TEST(QuantizedMatmul, LeadingAxesAreKept) {
  Matrix matrix = make_matrix({4, 64, "affine"}, 24, 128, mx::float32);
  mx::array x = normal({2, 3, 5, 128}, 1);
  EXPECT_EQ(
      quantized_matmul(x, matrix.packed).shape(),
      (mx::Shape{2, 3, 5, 24}));
  // A transposed view is no contiguous row of numbers.
  mx::array swapped = mx::transpose(x, {1, 0, 2, 3});
  EXPECT_LT(
      relative_error(
          quantized_matmul(swapped, matrix.packed),
          quantized_matmul(swapped, matrix.plain)),
      1e-4);
}

TEST(DequantizeRows, GivesTheSameNumbersInBothForms) {
  for (const Case& c : kCases) {
    Matrix matrix = make_matrix(c, 40, 256, mx::float32);
    int picks[] = {3, 0, 39, 3, 17, 32};
    mx::array ids(picks, {2, 3}, mx::int32);
    mx::array expected = dequantize_rows(matrix.plain, ids);
    mx::array actual = dequantize_rows(matrix.packed, ids);
    EXPECT_EQ(actual.shape(), (mx::Shape{2, 3, 256}));
    EXPECT_LT(relative_error(actual, expected), 1e-6)
        << describe(c, 6, 40, 256);
  }
}

TEST(PackQuantized, RestoresMlxsForm) {
  for (const Case& c : kCases) {
    Matrix matrix = make_matrix(c, 40, 256, mx::float32);
    const auto& before = matrix.plain.arrays();
    WeightArrays after = matrix.packed.restore();
    EXPECT_TRUE(same_bits(before.weight, after.weight));
    EXPECT_TRUE(mx::array_equal(*before.scales, *after.scales).item<bool>());
    EXPECT_EQ(before.biases.has_value(), after.biases.has_value());
    if (before.biases) {
      EXPECT_TRUE(mx::array_equal(*before.biases, *after.biases).item<bool>());
    }
  }
}

TEST(QuantizedMatmul, EveryInstructionSetAgrees) {
  for (InstructionSet set : available_instruction_sets()) {
    Selection selection = select_best();
    selection.instruction_set = set;
    for (const Case& c : kCases) {
      Matrix matrix = make_matrix(c, 72, 256, mx::float16, selection);
      for (int rows : {1, 2, 3, 4, 5, 6, 7, 13, 40}) {
        mx::array x = normal({rows, 256}, rows);
        mx::array dense = dequantize_rows(matrix.packed, mx::arange(72));
        EXPECT_LT(
            relative_error(
                quantized_matmul(x, matrix.packed),
                mx::matmul(x, mx::transpose(dense))),
            1e-4)
            << to_string(set) << ", " << describe(c, rows, 72, 256);
      }
    }
  }
}

// Alone, in any batch, at any place of it, with any number of threads.
TEST(QuantizedMatmul, ARowHasTheSameBitsInEveryCompany) {
  for (InstructionSet set : available_instruction_sets()) {
    for (const Case& c :
         {kCases[1], kCases[2], kCases[4], kCases[7], kCases[11]}) {
      std::optional<mx::array> expected;
      for (int threads : {1, 2, 3, 8}) {
        Selection selection{
            .instruction_set = set,
            .threads = std::make_shared<ThreadPool>(threads)};
        // Longer than one unpacked block, and not a whole number of panels.
        Matrix matrix = make_matrix(c, 168, 2048, mx::bfloat16, selection);
        mx::array x = normal({50, 2048}, 6);
        mx::array all = quantized_matmul(x, matrix.packed);
        if (!expected) {
          expected = all;
        }
        EXPECT_TRUE(same_bits(all, *expected)) << threads;
        for (auto [from, to] :
             {std::pair{0, 1}, {49, 50}, {17, 19}, {30, 35}, {3, 28}}) {
          mx::array part = mx::slice(x, {from, 0}, {to, 2048});
          EXPECT_TRUE(same_bits(
              quantized_matmul(part, matrix.packed),
              mx::slice(*expected, {from, 0}, {to, 168})))
              << to_string(set) << ", rows " << from << " to " << to;
        }
      }
    }
  }
}

TEST(QuantizedMatmul, GradientIsThatOfTheFallback) {
  Matrix matrix = make_matrix({4, 32, "affine"}, 40, 64, mx::float32);
  mx::array x = normal({3, 64}, 1);
  mx::array weight = normal({3, 40}, 2);
  auto gradient = [&](const Parameter& parameter) {
    return mx::grad([&](const mx::array& input) {
      return mx::sum(mx::multiply(quantized_matmul(input, parameter), weight));
    })(x);
  };
  EXPECT_LT(
      relative_error(gradient(matrix.packed), gradient(matrix.plain)),
      1e-5);
}

TEST(QuantizedMatmul, WidthMismatchIsAnError) {
  Matrix matrix = make_matrix({4, 32, "affine"}, 40, 64, mx::float32);
  EXPECT_THROW(quantized_matmul(normal({3, 96}, 1), matrix.packed), Error);
}

TEST(DequantizeRows, IdsOutsideTheTableReadNothing) {
  Matrix matrix = make_matrix({4, 32, "affine"}, 40, 64, mx::float32);
  for (int id : {-1, 40, INT32_MAX, INT32_MIN}) {
    mx::array row = dequantize_rows(matrix.packed, mx::array({id}, mx::int32));
    EXPECT_TRUE(mx::all(mx::isnan(row)).item<bool>());
  }
}

void check_dense_panels(
    const Selection& selection,
    mx::Dtype dtype,
    bool rounded) {
  for (auto [out, in] : {std::pair{5, 32}, {72, 96}, {40, 2080}}) {
    mx::array dense = mx::astype(normal({out, in}, 1), dtype);
    auto packed = pack_dense(dense, selection);
    ASSERT_TRUE(packed);
    EXPECT_GE(
        packed->nbytes(),
        size_t(out + 31) / 32 * 32 * in * dense.itemsize());
    mx::array x = normal({19, in}, 2);
    mx::array all = packed->matmul(x);
    mx::array wide = mx::astype(dense, mx::float32);
    float error = relative_error(all, mx::matmul(x, mx::transpose(wide)));
    EXPECT_LT(error, rounded ? 5e-3 : 1e-5);
    EXPECT_EQ(error > 1e-4, rounded);
    for (int row : {0, 7, 18}) {
      EXPECT_TRUE(same_bits(
          packed->matmul(mx::slice(x, {row, 0}, {row + 1, in})),
          mx::slice(all, {row, 0}, {row + 1, out})));
    }
    EXPECT_TRUE(same_bits(packed->restore().weight, dense));
    EXPECT_TRUE(same_bits(packed->take_rows(mx::arange(out)), wide));
  }
}

TEST(DensePanels, AgreeWithMlxAndKeepEachRowsBits) {
  for (InstructionSet set : available_instruction_sets()) {
    Selection selection{
        .instruction_set = set,
        .threads = std::make_shared<ThreadPool>(2)};
    for (auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
      for (auto form : {ActivationForm::int16, ActivationForm::int8}) {
        selection.activations = form;
        bool rounded = form == ActivationForm::int8 && dtype == mx::bfloat16 &&
            dense_kernels(set).round_row;
        SCOPED_TRACE(to_string(set));
        check_dense_panels(selection, dtype, rounded);
      }
    }
  }
  // Not a whole number of chunks.
  EXPECT_EQ(pack_dense(normal({8, 40}, 1), select_best()), nullptr);
  EXPECT_EQ(pack_dense(normal({8, 64}, 1), select_fallback()), nullptr);
}

// What GGUF's Q4_0, Q4_1 and Q8_0 become: 4.5, 5 and 8.5 bits per weight.
TEST(PackQuantized, StoresNoMoreThanTheFileDid) {
  auto bytes_of = [](int bits, bool symmetric) {
    mx::array q = mx::random::randint(
        0,
        INT32_MAX,
        {64, 32 * bits / 8},
        mx::int32,
        mx::random::key(1));
    mx::array scales =
        mx::astype(mx::astype(normal({64, 4}, 2), mx::float16), mx::float32);
    mx::array biases = symmetric
        ? mx::multiply(scales, mx::array(-std::pow(2.0f, bits - 1)))
        : mx::astype(mx::astype(normal({64, 4}, 3), mx::float16), mx::float32);
    auto packed = pack_quantized(
        {mx::astype(q, mx::uint32), scales, biases},
        {32, bits, "affine"},
        select_best());
    return packed->nbytes();
  };
  EXPECT_EQ(bytes_of(4, true), 64u * 4u * 18u);
  EXPECT_EQ(bytes_of(4, false), 64u * 4u * 20u);
  EXPECT_EQ(bytes_of(8, true), 64u * 4u * 34u);
}

// Scales are kept in the smallest form that gives back the same numbers.
TEST(PackQuantized, ScalesLoseNothing) {
  auto bytes_with = [](float odd) {
    std::vector<float> numbers(64 * 4, 0.25f);
    numbers[37] = odd;
    mx::array scales(numbers.data(), {64, 4});
    mx::array biases = mx::multiply(scales, mx::array(-3.0f));
    mx::array q = mx::zeros({64, 16}, mx::uint32);
    auto packed =
        pack_quantized({q, scales, biases}, {32, 4, "affine"}, select_best());
    WeightArrays after = packed->restore();
    EXPECT_TRUE(same_bits(*after.scales, scales)) << odd;
    EXPECT_TRUE(same_bits(*after.biases, biases)) << odd;
    return packed->nbytes();
  };
  size_t half = bytes_with(0.25f);
  // Zeros, subnormal and largest half-precision numbers, infinity.
  const float least = std::ldexp(1.0f, -24);
  for (float same : {0.0f, -0.0f, least, 3 * least, 21824.0f, INFINITY}) {
    EXPECT_EQ(bytes_with(same), half) << same;
  }
  // Of bfloat16 only, and then of float32 only.
  EXPECT_EQ(bytes_with(std::ldexp(1.0f, 20)), half);
  EXPECT_EQ(bytes_with(std::ldexp(1.0f, -40)), half);
  for (float wide : {0.1f, 65519.0f, std::ldexp(1.0f + 1.0f / 1024, -40)}) {
    EXPECT_GT(bytes_with(wide), half) << wide;
  }
}

// As a checkpoint gives it: in the middle of a file, other bytes before it.
TEST(PackQuantized, ReadsBorrowedMemoryInPlace) {
  if (!can_borrow_memory()) {
    GTEST_SKIP() << "arrays cannot stand on other memory here";
  }
  auto parts = mx::quantize(normal({64, 128}, 1), 32, 4);
  mx::eval(parts);
  auto borrow = [](const mx::array& a) {
    auto file = std::make_shared<std::vector<char>>(64 + a.nbytes(), '\x7f');
    std::memcpy(file->data() + 64, a.data<char>(), a.nbytes());
    auto* at = reinterpret_cast<const std::byte*>(file->data() + 64);
    return borrow_memory(file, at, a.shape(), a.dtype()).value();
  };
  const QuantizationSpec spec{32, 4, "affine"};
  auto one =
      pack_quantized({parts[0], parts[1], parts[2]}, spec, select_best());
  size_t before = mx::get_active_memory();
  mx::reset_peak_memory();
  auto other = pack_quantized(
      {borrow(parts[0]), borrow(parts[1]), borrow(parts[2])},
      spec,
      select_best());
  EXPECT_LT(mx::get_peak_memory() - before, other->nbytes() + 4096);
  mx::array x = normal({3, 128}, 2);
  EXPECT_TRUE(same_bits(one->matmul(x), other->matmul(x)));
}

TEST(PackQuantized, FallbackKeepsMlxsForm) {
  auto parts = mx::quantize(normal({8, 64}, 1), 64, 4);
  EXPECT_EQ(
      pack_quantized(
          {parts[0], parts[1], parts[2]},
          {64, 4, "affine"},
          select_fallback()),
      nullptr);
}

}  // namespace
}  // namespace mlxx::kernels
