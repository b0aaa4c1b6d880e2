// The gradient of every kernel against finite differences of its own values.
#include "mlxx/kernels/attention/attention.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "mlxx/kernels/rms_norm/rms_norm.h"
#include "mlxx/kernels/rope/rope.h"
#include "mlxx/kernels/swiglu/swiglu.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;
using Op = std::function<Arrays(const Arrays&, const Selection&)>;

// With MLX's operations, the portable kernels and the fastest ones.
void expect_right_gradients(const Op& op, const Arrays& arguments) {
  Selection portable = select_best();
  portable.instruction_set = InstructionSet::portable;
  for (const auto& selection : {Selection{}, portable, select_best()}) {
    auto function = [&](const Arrays& x) { return op(x, selection); };
    EXPECT_TRUE(check_gradient(function, arguments))
        << to_string(selection.instruction_set) << " "
        << selection.has_cpu_kernels();
  }
}

TEST(Gradients, RmsNorm) {
  auto op = [](const Arrays& x, const Selection& selection) {
    return Arrays{rms_norm(x[0], x[1], 1e-5f, selection)};
  };
  for (int n : {7, 64}) {
    expect_right_gradients(op, {normal({3, n}, 1), normal({n}, 2)});
    expect_right_gradients(op, {normal({2, 20, n}, 3), normal({n}, 4)});
  }
}

TEST(Gradients, Swiglu) {
  auto op = [](const Arrays& x, const Selection& selection) {
    return Arrays{swiglu(x[0], x[1], selection)};
  };
  for (int n : {5, 48}) {
    expect_right_gradients(op, {normal({3, n}, 1), normal({3, n}, 2)});
  }
}

TEST(Gradients, Rope) {
  for (bool traditional : {false, true}) {
    RopeAngles angles{
        .dims = 16,
        .traditional = traditional,
        .base = 10000.0f,
        .wavelengths = std::nullopt,
        .position_scale = 1};
    auto op = [&](const Arrays& x, const Selection& selection) {
      return Arrays{rope(x[0], angles, 5, selection)};
    };
    expect_right_gradients(op, {normal({2, 3, 4, 16}, 1)});
    expect_right_gradients(op, {normal({1, 2, 4, 24}, 2)});
  }
}

TEST(Gradients, Attention) {
  for (const char* mode : {"", "causal"}) {
    auto op = [&](const Arrays& x, const Selection& selection) {
      return Arrays{attention(
          x[0],
          DenseView{x[1], x[2]},
          {.scale = 0.25f, .mask = {mode}},
          selection)};
    };
    // As many queries as keys, a few more keys, and a step of decoding.
    for (int queries : {6, 4, 1}) {
      expect_right_gradients(
          op,
          {normal({2, 4, queries, 16}, 1),
           normal({2, 2, 6, 16}, 2),
           normal({2, 2, 6, 16}, 3)});
    }
  }
}

TEST(Gradients, QuantizedMatmul) {
  struct Case {
    QuantizationSpec quantization;
    int rows;
  };
  for (const auto& [spec, rows] :
       {Case{{64, 4, "affine"}, 1},
        Case{{64, 4, "affine"}, 40},
        Case{{32, 8, "affine"}, 3},
        Case{{32, 4, "mxfp4"}, 2},
        Case{{32, 4, "mxfp4"}, 40}}) {
    auto parts = mx::quantize(
        normal({32, 64}, 1),
        spec.group_size,
        spec.bits,
        spec.mode);
    WeightArrays arrays{parts[0], parts[1], std::nullopt};
    if (parts.size() > 2) {
      arrays.biases = parts[2];
    }
    Parameter plain({32, 64}, Parameter::Kind::matrix);
    plain.set(arrays, spec);
    std::vector<Parameter> forms = {plain};
    // Null where MLX's own form is the fastest. Differences need activations
    // that are not rounded.
    Selection exact = select_best();
    exact.activations = ActivationForm::float32;
    if (auto packed = pack_quantized(arrays, spec, exact)) {
      forms.push_back(plain);
      forms.back().set_packed(packed);
    }
    for (const Parameter& matrix : forms) {
      auto function = [&](const Arrays& x) {
        return Arrays{quantized_matmul(x[0], matrix)};
      };
      EXPECT_TRUE(check_gradient(function, {normal({rows, 64}, 2)}))
          << spec.mode << " " << spec.bits << " " << rows;
    }
  }
}

}  // namespace
}  // namespace mlxx::kernels
