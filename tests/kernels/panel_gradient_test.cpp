// The gradient of products with packed matrices.
#include "mlxx/kernels/quantized_matmul/packed_panels.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/peak_memory.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

Selection with(InstructionSet set, int threads, ActivationForm form) {
  Selection selection = select_best();
  selection.instruction_set = set;
  selection.threads = std::make_shared<ThreadPool>(threads);
  selection.activations = form;
  return selection;
}

mx::array gradient(
    const PackedWeights& packed,
    const mx::array& x,
    const mx::array& cotangent) {
  return mx::vjp(
             [&](const Arrays& in) { return Arrays{packed.matmul(in[0])}; },
             {x},
             {cotangent})
      .second[0];
}

struct Case {
  QuantizationSpec spec;
  int out;
  int in;
  int rows;
};

const Case kCases[] = {
    {{32, 2, "affine"}, 40, 64, 3},
    {{64, 3, "affine"}, 64, 192, 20},
    {{32, 4, "affine"}, 1100, 96, 5},
    {{64, 4, "affine"}, 70, 1088, 40},
    {{32, 5, "affine"}, 33, 32, 1},
    {{32, 6, "affine"}, 32, 320, 2},
    {{128, 8, "affine"}, 96, 128, 50},
    {{32, 4, "mxfp4"}, 520, 96, 30},
    {{16, 4, "nvfp4"}, 48, 64, 4},
    {{32, 8, "mxfp8"}, 64, 160, 14}};

TEST(PanelGradient, IsTheCotangentTimesTheMatrix) {
  for (auto set : available_instruction_sets()) {
    for (const auto& [spec, out, in, rows] : kCases) {
      auto parts = mx::quantize(
          normal({out, in}, 1),
          spec.group_size,
          spec.bits,
          spec.mode);
      WeightArrays arrays{parts[0], parts[1], std::nullopt};
      if (parts.size() > 2) {
        arrays.biases = parts[2];
      }
      // How activations are rounded on the way forward does not matter.
      for (auto form : {ActivationForm::int8, ActivationForm::float32}) {
        auto packed = pack_quantized(arrays, spec, with(set, 2, form));
        if (!packed) {
          GTEST_SKIP() << "no CPU kernels";
        }
        mx::array y = normal({rows, out}, 3);
        mx::array whole = mx::dequantize(
            arrays.weight,
            *arrays.scales,
            arrays.biases,
            spec.group_size,
            spec.bits,
            spec.mode);
        mx::array x = gradient(*packed, normal({rows, in}, 2), y);
        EXPECT_LE(
            relative_error(x, mx::matmul(y, mx::astype(whole, mx::float32))),
            2e-6f)
            << to_string(set) << " " << spec.mode << " " << spec.bits << " "
            << out << "x" << in;
      }
    }
  }
}

TEST(PanelGradient, OfDensePanelsInTheDtypeOfTheActivations) {
  for (auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    mx::array weight = mx::astype(normal({90, 96}, 1), dtype);
    auto packed = pack_dense(weight, select_best());
    if (!packed) {
      GTEST_SKIP() << "no CPU kernels";
    }
    mx::array y = mx::astype(normal({2, 9, 90}, 3), dtype);
    mx::array x =
        gradient(*packed, mx::astype(normal({2, 9, 96}, 2), dtype), y);
    EXPECT_EQ(x.dtype(), dtype);
    EXPECT_EQ(x.shape(), (mx::Shape{2, 9, 96}));
    mx::array expected =
        mx::matmul(mx::astype(y, mx::float32), mx::astype(weight, mx::float32));
    float allowed = dtype == mx::float32 ? 2e-6f
        : dtype == mx::float16           ? 5e-4f
                                         : 4e-3f;
    EXPECT_LE(relative_error(x, expected), allowed) << dtype;
  }
}

TEST(PanelGradient, HasTheSameBitsWithAnyThreads) {
  mx::array weight = normal({600, 96}, 1);
  mx::array y = normal({50, 600}, 2);
  std::optional<mx::array> first;
  for (int threads : {1, 2, 3}) {
    auto packed = pack_dense(
        weight,
        with(select_best().instruction_set, threads, ActivationForm::float32));
    if (!packed) {
      GTEST_SKIP() << "no CPU kernels";
    }
    mx::array x = gradient(*packed, normal({50, 96}, 3), y);
    if (!first) {
      first = x;
    }
    EXPECT_TRUE(same_bits(x, *first)) << threads;
  }
}

// Linear both ways, so that the gradient of the gradient is the product.
TEST(PanelGradient, HasAGradientItself) {
  auto packed = pack_dense(normal({64, 96}, 1), select_best());
  if (!packed) {
    GTEST_SKIP() << "no CPU kernels";
  }
  auto back = [&](const Arrays& y) {
    return Arrays{gradient(*packed, mx::zeros({5, 96}), y[0])};
  };
  EXPECT_TRUE(check_gradient(back, {normal({5, 64}, 2)}));
}

TEST(PanelGradient, NeverHoldsTheMatrixInFloat32) {
  constexpr int kOut = 16384;
  constexpr int kIn = 4096;
  constexpr int64_t kMatrix = int64_t{kOut} * kIn * 4;  // 256 MiB
  WeightArrays arrays{
      mx::full({kOut, kIn / 8}, uint32_t{0x6b3c92a5}, mx::uint32),
      mx::full({kOut, kIn / 64}, 0.01f, mx::float16),
      mx::full({kOut, kIn / 64}, -0.07f, mx::float16)};
  auto packed = pack_quantized(arrays, {64, 4, "affine"}, select_best());
  if (!packed) {
    GTEST_SKIP() << "no CPU kernels";
  }
  mx::array y = mx::ones({4, kOut});
  mx::eval(y);
  auto peak = peak_memory([&] {
    mx::array x = gradient(*packed, mx::zeros({4, kIn}), y);
    mx::eval(x);
  });
  if (!peak) {
    GTEST_SKIP() << "the system does not tell the peak";
  }
  EXPECT_LT(*peak, kMatrix / 16);
}

}  // namespace
}  // namespace mlxx::kernels
