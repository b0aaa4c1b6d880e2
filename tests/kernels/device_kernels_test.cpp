// Kernels that MLX compiles for the GPU, against plain operations. On a machine
// without one these are their fallbacks.
#include <gtest/gtest.h>

#include "mlxx/core/device.h"
#include "mlxx/kernels/attention/product_attention.h"
#include "mlxx/kernels/attention/shape_steps.h"
#include "mlxx/kernels/expert_matmul/device_experts.h"
#include "mlxx/kernels/gated_delta/gated_delta_cpu.h"
#include "mlxx/kernels/gated_delta/gated_delta_device.h"
#include "mlxx/kernels/quantized_matmul/device_matmul.h"
#include "mlxx/kernels/rms_norm/trained_rms_norm.h"
#include "mlxx/kernels/row_lookup/row_lookup.h"
#include "mlxx/kernels/short_conv/short_conv_cpu.h"
#include "mlxx/kernels/short_conv/short_conv_device.h"
#include "mlxx/kernels/ssm/ssm_device.h"
#include "mlxx/kernels/swiglu/trained_swiglu.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

mx::array numbers(const mx::Shape& shape, uint64_t seed, mx::Dtype dtype) {
  mx::array x = mx::astype(normal(shape, seed), dtype);
  mx::eval(x);
  return x;
}

// Rounding of one number, and what products of such numbers may be off by.
float epsilon(mx::Dtype dtype) {
  return dtype == mx::bfloat16 ? 0.008f : dtype == mx::float16 ? 0.001f : 1e-4f;
}

struct Form {
  int bits;
  int group;
  const char* mode;
};

constexpr Form kForms[] = {
    {4, 64, "affine"},
    {4, 32, "affine"},
    {4, 128, "affine"},
    {8, 64, "affine"},
    {8, 32, "affine"},
    {3, 64, "affine"},
    {5, 32, "affine"},
    {6, 64, "affine"},
    {2, 128, "affine"},
    {4, 32, "mxfp4"},
    {4, 16, "nvfp4"},
    {8, 32, "mxfp8"},
};

WeightArrays
quantized(const Form& form, const mx::Shape& shape, mx::Dtype dtype) {
  auto parts =
      mx::quantize(numbers(shape, 3, dtype), form.group, form.bits, form.mode);
  mx::eval(parts);
  return {
      parts[0],
      parts[1],
      parts.size() > 2 ? std::optional(parts[2]) : std::nullopt,
      std::nullopt};
}

mx::array reference(const WeightArrays& arrays, const QuantizationSpec& spec) {
  auto whole = [](const mx::array& a) {
    bool is_float = mx::issubdtype(a.dtype(), mx::floating);
    return is_float ? mx::astype(a, mx::float32) : a;
  };
  return mx::astype(
      mx::dequantize(
          arrays.weight,
          whole(*arrays.scales),
          arrays.biases ? std::optional(whole(*arrays.biases)) : std::nullopt,
          spec.group_size,
          spec.bits,
          spec.mode),
      mx::float32);
}

constexpr mx::Dtype kDtypes[] = {mx::bfloat16, mx::float16, mx::float32};

// Every one is compiled anew on a GPU, which takes seconds.
std::vector<mx::Dtype> dtypes_of(const Form& form) {
  bool common = std::string_view(form.mode) == "affine" && form.group != 128 &&
      (form.bits == 4 || form.bits == 8);
  return common || backend() == Backend::cpu
      ? std::vector<mx::Dtype>(std::begin(kDtypes), std::end(kDtypes))
      : std::vector<mx::Dtype>{mx::bfloat16};
}

TEST(DeviceMatmul, DequantizesEveryForm) {
  for (const Form& form : kForms) {
    for (mx::Dtype dtype : dtypes_of(form)) {
      QuantizationSpec spec{form.group, form.bits, form.mode};
      auto arrays = quantized(form, {24, 256}, dtype);
      mx::array got = device_dequantize(arrays, spec, dtype);
      EXPECT_EQ(got.dtype(), dtype);
      EXPECT_LT(relative_error(got, reference(arrays, spec)), epsilon(dtype))
          << form.mode << form.bits << " " << form.group;
      auto stack = quantized(form, {3, 8, 256}, dtype);
      EXPECT_EQ(
          device_dequantize(stack, spec, dtype).shape(),
          (mx::Shape{3, 8, 256}));
      EXPECT_LT(
          relative_error(
              device_dequantize(stack, spec, dtype),
              reference(stack, spec)),
          epsilon(dtype));
    }
  }
}

TEST(DeviceMatmul, MultipliesAnyNumberOfRows) {
  for (const Form& form : kForms) {
    for (mx::Dtype dtype : dtypes_of(form)) {
      QuantizationSpec spec{form.group, form.bits, form.mode};
      // 24 outputs: no whole number of a block's 16.
      auto arrays = quantized(form, {24, 256}, dtype);
      mx::array dense = mx::transpose(reference(arrays, spec));
      for (int rows : {1, 9, 64, 70}) {
        if (rows <= kFewRows && backend() != Backend::cpu &&
            !covers_few_rows(arrays, spec, dtype)) {
          continue;  // MLX's own product
        }
        mx::array x = numbers({rows, 256}, rows, dtype);
        mx::array got = device_quantized_matmul(x, arrays, spec);
        EXPECT_EQ(got.dtype(), dtype);
        EXPECT_LT(
            relative_error(got, mx::matmul(mx::astype(x, mx::float32), dense)),
            // MLX sums in the dtype on a CPU; TF32 where it is on.
            (backend() == Backend::cpu ? 8 : 2) *
                std::max(epsilon(dtype), 1e-3f))
            << form.mode << form.bits << " " << form.group << " " << rows;
      }
    }
  }
}

TEST(DeviceMatmul, TakesAllLeadingAxesAsRowsOfOneProduct) {
  QuantizationSpec spec{64, 4, "affine"};
  auto arrays = quantized({4, 64, "affine"}, {48, 256}, mx::bfloat16);
  for (int rows : {6, 90}) {
    mx::array x = numbers({rows, 256}, 5, mx::bfloat16);
    mx::array expected = device_quantized_matmul(x, arrays, spec);
    mx::array deep = device_quantized_matmul(
        mx::reshape(x, {2, rows / 2, 1, 256}),
        arrays,
        spec);
    EXPECT_EQ(deep.shape(), (mx::Shape{2, rows / 2, 1, 48}));
    EXPECT_TRUE(same_bits(mx::reshape(deep, {rows, 48}), expected));
  }
  mx::array none = mx::zeros({0, 256}, mx::bfloat16);
  EXPECT_EQ(
      device_quantized_matmul(none, arrays, spec).shape(),
      (mx::Shape{0, 48}));
}

TEST(DeviceMatmul, GradientIsThatOfTheDenseProduct) {
  QuantizationSpec spec{64, 4, "affine"};
  auto arrays = quantized({4, 64, "affine"}, {48, 256}, mx::float32);
  mx::array dense = mx::transpose(reference(arrays, spec));
  for (int rows : {4, 80}) {
    mx::array x = numbers({rows, 256}, 5, mx::float32);
    mx::array g = numbers({rows, 48}, 6, mx::float32);
    auto of = [&](auto product) {
      return mx::vjp(
                 [&](const std::vector<mx::array>& in) {
                   return std::vector<mx::array>{product(in[0])};
                 },
                 {x},
                 {g})
          .second[0];
    };
    mx::array got = of([&](const mx::array& in) {
      return device_quantized_matmul(in, arrays, spec);
    });
    mx::array expected =
        of([&](const mx::array& in) { return mx::matmul(in, dense); });
    EXPECT_LT(relative_error(got, expected), 2e-3f);
  }
}

TEST(DeviceExperts, MultiplyRowsInAnyOrderAndSorted) {
  QuantizationSpec spec{64, 4, "affine"};
  int E = 5, out = 24, in = 128;
  for (mx::Dtype dtype : {mx::bfloat16, mx::float16}) {
    auto arrays = quantized({4, 64, "affine"}, {E, out, in}, dtype);
    mx::array dense = mx::swapaxes(reference(arrays, spec), -1, -2);
    auto check = [&](const mx::array& x,
                     const mx::array& indices,
                     bool sorted) {
      ASSERT_TRUE(covers_device_experts(x, arrays, spec, indices));
      mx::array got = device_expert_matmul(x, arrays, spec, indices, sorted);
      mx::array expected = mx::gather_mm(
          mx::astype(x, mx::float32),
          dense,
          std::nullopt,
          indices);
      EXPECT_EQ(got.shape(), expected.shape());
      EXPECT_LT(relative_error(got, expected), 2 * epsilon(dtype))
          << indices.size() << sorted;
    };
    auto chosen = [&](const mx::Shape& shape) {
      return mx::random::randint(0, E, shape, mx::int32, mx::random::key(9));
    };
    // A row for all experts of a token, a row for each, and sorted: few, some
    // with none, and many.
    check(numbers({2, 3, 1, 1, in}, 1, dtype), chosen({2, 3, 2}), false);
    check(numbers({2, 3, 2, 1, in}, 2, dtype), chosen({2, 3, 2}), false);
    for (int rows : {3, 40, 79, 200}) {
      if (rows > kRowsOfExpert * E && backend() == Backend::cpu) {
        continue;  // MLX multiplies such matrices in float32 only
      }
      check(
          numbers({rows, 1, in}, rows, dtype),
          mx::sort(chosen({rows})),
          true);
    }
  }
}

TEST(DeviceAttention, LengthsThatAreNotRoundAreComputedAsRoundOnes) {
  EXPECT_EQ(round_length(1), 64);
  EXPECT_EQ(round_length(512), 512);
  EXPECT_EQ(round_length(513), 640);
  EXPECT_EQ(round_length(2048), 2048);
  EXPECT_EQ(round_length(2049), 2560);
  for (bool sinks : {false, true}) {
    for (auto [L, before] : {std::pair{3, 0}, {70, 0}, {64, 10}, {5, 300}}) {
      mx::array q = numbers({2, 4, L, 32}, 1, mx::float16);
      DenseView view{
          numbers({2, 2, before + L, 32}, 2, mx::float16),
          numbers({2, 2, before + L, 32}, 3, mx::float16)};
      AttentionOptions options{.scale = 0.2f, .mask = {"causal"}};
      if (sinks) {
        options.sinks = numbers({4}, 4, mx::float16);
      }
      mx::array got = attention_of_round_lengths(q, view, options);
      mx::array expected = plain_attention(q, view.keys, view.values, options);
      EXPECT_EQ(got.shape(), expected.shape());
      EXPECT_LT(relative_error(got, expected), 2 * epsilon(mx::float16))
          << L << " " << before;
    }
  }
}

TEST(DeviceAttention, ProductsAgreeWithPlainOperations) {
  for (const char* mode : {"causal", "", "array"}) {
    for (auto [L, before] : {std::pair{3, 0}, {70, 0}, {5, 300}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", mode, L, before));
      mx::array q = numbers({3, 4, L, 32}, 1, mx::float16);
      DenseView view{
          numbers({3, 2, before + L, 32}, 2, mx::float16),
          numbers({3, 2, before + L, 32}, 3, mx::float16)};
      AttentionOptions options{.scale = 0.2f, .mask = {"causal"}};
      if (std::string_view(mode) != "causal") {
        options.mask.mode = "";
      }
      if (std::string_view(mode) == "array") {
        // Every query sees the first key.
        options.mask.array = mx::logical_or(
            mx::greater(
                numbers({L, before + L}, 5, mx::float32),
                mx::array(-0.1f)),
            mx::equal(mx::arange(before + L), mx::array(0)));
      }
      mx::array got = attention_by_products(q, view, options);
      mx::array expected = plain_attention(q, view.keys, view.values, options);
      EXPECT_EQ(got.shape(), expected.shape());
      EXPECT_EQ(got.dtype(), expected.dtype());
      EXPECT_LT(relative_error(got, expected), 2 * epsilon(mx::float16));
    }
  }
}

// Batches where a device kernel and plain operations must agree.
TEST(DeviceScans, GatedDeltaAgreesWithItsPlainOperations) {
  for (mx::Dtype dtype : kDtypes) {
    for (bool per_key : {false, true}) {
      for (bool masked : {false, true}) {
        int B = 2, T = 9, Hk = 2, Hv = 4, Dk = 48, Dv = 30;
        auto unit = [&](uint64_t seed, const mx::Shape& shape) {
          return mx::astype(mx::sigmoid(normal(shape, seed)), mx::float32);
        };
        mx::Shape gates =
            per_key ? mx::Shape{B, T, Hv, Dk} : mx::Shape{B, T, Hv};
        mx::array scale(0.15f, dtype);
        GatedDeltaInputs in{
            mx::multiply(numbers({B, T, Hk, Dk}, 1, dtype), scale),
            mx::multiply(numbers({B, T, Hk, Dk}, 2, dtype), scale),
            numbers({B, T, Hv, Dv}, 3, dtype),
            unit(4, gates),
            unit(5, {B, T, Hv}),
            numbers({B, Hv, Dv, Dk}, 6, mx::float32),
            std::nullopt};
        if (masked) {
          in.mask = mx::greater(
              mx::expand_dims(mx::array({9, 5}), 1),
              mx::expand_dims(mx::arange(T), 0));
        }
        auto got = device_gated_delta(in);
        auto expected = plain_gated_delta(in);
        EXPECT_EQ(got.out.dtype(), dtype);
        EXPECT_LT(
            relative_error(got.state, expected.state),
            2 * epsilon(dtype));
        mx::array first = mx::slice(got.out, {0, 0, 0, 0}, {B, 5, Hv, Dv});
        mx::array wanted =
            mx::slice(expected.out, {0, 0, 0, 0}, {B, 5, Hv, Dv});
        EXPECT_LT(relative_error(first, wanted), 2 * epsilon(dtype));
      }
    }
  }
}

TEST(DeviceScans, SsmAgreesWithThePlainScan) {
  for (mx::Dtype dtype : kDtypes) {
    for (int padding : {0, 4}) {
      int B = 2, L = 11, H = 4, Dh = 18, G = 2, N = 40;
      SsmInputs in{
          numbers({B, L, H, Dh}, 1, dtype),
          numbers({H}, 2, mx::float32),
          numbers({B, L, G, N}, 3, dtype),
          numbers({B, L, G, N}, 4, dtype),
          numbers({H}, 5, mx::float32),
          numbers({B, L, H}, 6, dtype),
          numbers({H}, 7, mx::float32),
          0.001f,
          10.0f,
          numbers({B, H, Dh, N}, 8, mx::float32),
          std::nullopt,
          std::nullopt};
      if (padding > 0) {
        in.lengths = mx::array({L, L - padding}, mx::int32);
        in.mask = mx::greater(
            mx::expand_dims(*in.lengths, 1),
            mx::expand_dims(mx::arange(L), 0));
      }
      auto got = device_ssm_scan(in);
      auto expected = plain_ssm_scan(in);
      int kept = L - padding;
      EXPECT_LT(
          relative_error(
              mx::slice(got.out, {0, 0, 0, 0}, {B, kept, H, Dh}),
              mx::slice(expected.out, {0, 0, 0, 0}, {B, kept, H, Dh})),
          2 * std::max(epsilon(dtype), 1e-3f));
      EXPECT_LT(
          relative_error(got.state, expected.state),
          2 * std::max(epsilon(dtype), 1e-3f));
    }
  }
}

TEST(DeviceScans, ShortConvAgreesWithItsPlainOperations) {
  for (mx::Dtype dtype : kDtypes) {
    for (int parts = 0; parts < 8; ++parts) {
      int B = 2, L = 10, C = 130, W = 4;
      ShortConvInputs in{
          numbers({B, L, C}, 1, dtype),
          numbers({C, W, 1}, 2, dtype),
          std::nullopt,
          (parts & 2) != 0,
          numbers({B, W - 1, C}, 4, dtype),
          std::nullopt};
      if (parts & 1) {
        in.bias = numbers({C}, 3, dtype);
      }
      if (parts & 4) {
        in.lengths = mx::array({2, 10}, mx::int32);
      }
      auto got = device_short_conv(in);
      auto expected = plain_short_conv(in);
      EXPECT_LT(
          relative_error(got.out, expected.out),
          2 * std::max(epsilon(dtype), 1e-3f));
      EXPECT_TRUE(same_bits(got.state, expected.state));
    }
  }
}

// Outputs, and gradients in all inputs for a random cotangent.
std::vector<mx::array> with_gradients(
    const std::function<mx::array(const std::vector<mx::array>&)>& function,
    const std::vector<mx::array>& inputs) {
  auto one = [&](const std::vector<mx::array>& x) {
    return std::vector<mx::array>{function(x)};
  };
  mx::array d = numbers(function(inputs).shape(), 9, inputs[0].dtype());
  auto [outputs, gradients] = mx::vjp(one, inputs, {d});
  gradients.push_back(outputs[0]);
  return gradients;
}

TEST(DeviceTraining, NormsAndGatedActivationsHaveTheirGradients) {
  for (mx::Dtype dtype : kDtypes) {
    for (int width : {256, 1001}) {
      std::vector<mx::array> x{
          numbers({2, 9, width}, 1, dtype),
          numbers({2, 9, width}, 2, dtype)};
      auto ours = with_gradients(
          [](const auto& in) { return trained_swiglu(in[0], in[1]); },
          x);
      auto plain = with_gradients(
          [](const auto& in) {
            mx::array gate = mx::astype(in[0], mx::float32);
            return mx::astype(
                mx::multiply(mx::multiply(gate, mx::sigmoid(gate)), in[1]),
                in[0].dtype());
          },
          x);
      x[1] = numbers({width}, 3, dtype);
      auto add = [&](auto& to, auto norm) {
        auto more = with_gradients(
            [&](const auto& in) { return norm(in[0], in[1]); },
            x);
        to.insert(to.end(), more.begin(), more.end());
      };
      add(ours, [](const mx::array& a, const mx::array& weight) {
        return trained_rms_norm(a, weight, 1e-5f);
      });
      add(plain, [](const mx::array& a, const mx::array& weight) {
        return mx::fast::rms_norm(a, weight, 1e-5f);
      });
      ASSERT_EQ(ours.size(), plain.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_LT(relative_error(ours[i], plain[i]), 2 * epsilon(dtype))
            << i << " " << width;
      }
    }
  }
}

TEST(DeviceTraining, RowsOfATableSumTheirGradients) {
  const int rows = 40;
  mx::array ids =
      mx::random::randint(0, rows / 2, {3, 70}, mx::int32, mx::random::key(5));
  mx::array one_hot = mx::astype(
      mx::equal(
          mx::expand_dims(mx::flatten(ids), 1),
          mx::expand_dims(mx::arange(rows), 0)),
      mx::float32);
  for (mx::Dtype dtype : kDtypes) {
    const std::vector<mx::array> table{numbers({rows, 33}, 1, dtype)};
    auto run = [&] {
      return with_gradients(
          [&](const auto& in) { return looked_up_rows(in[0], ids); },
          table);
    };
    auto first = run();
    auto second = run();
    mx::array d = mx::reshape(numbers({3, 70, 33}, 9, dtype), {210, 33});
    mx::array expected =
        mx::matmul(mx::transpose(one_hot), mx::astype(d, mx::float32));
    EXPECT_LT(relative_error(first[0], expected), 3 * epsilon(dtype));
    EXPECT_TRUE(same_bits(first[0], second[0]));
    EXPECT_TRUE(same_bits(first[1], mx::take(table[0], ids, 0)));
  }
}

}  // namespace
}  // namespace mlxx::kernels
