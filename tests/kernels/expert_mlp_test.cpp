#include "mlxx/kernels/expert_mlp/expert_mlp.h"

#include <gtest/gtest.h>

#include "mlxx/kernels/activation/activation.h"
#include "mlxx/kernels/expert_matmul/expert_matmul.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::kernels {
namespace {

constexpr int kExperts = 5;
constexpr int kHidden = 96;
constexpr int kInner = 64;

// Stacks and what they stand for: [experts, out, in] and [experts, out].
struct Layer {
  Parameter stacks[3];
  Parameter biases[3];
  std::vector<mx::array> dense;
  bool has_bias;
  bool has_gate = true;

  ExpertMlpWeights weights() const {
    auto bias = [&](int i) { return has_bias ? &biases[i] : nullptr; };
    return {
        has_gate ? &stacks[0] : nullptr,
        &stacks[1],
        &stacks[2],
        has_gate ? bias(0) : nullptr,
        bias(1),
        bias(2)};
  }
};

const ExpertActivation kSilu = {.function = Activation::silu};
const ExpertActivation kClamped = {.clamped = true};

Layer make_layer(
    bool quantized,
    bool bias,
    const Selection& selection,
    int inner = kInner) {
  Layer layer;
  layer.has_bias = bias;
  for (int i = 0; i < 3; ++i) {
    int out = i < 2 ? inner : kHidden;
    int in = i < 2 ? kHidden : inner;
    mx::array value =
        mx::multiply(normal({kExperts, out, in}, i + 1), mx::array(0.3f));
    WeightArrays arrays{value, std::nullopt, std::nullopt};
    std::optional<QuantizationSpec> spec;
    if (quantized) {
      spec = QuantizationSpec{32, 4, "affine"};
      auto parts = mx::quantize(value, 32, 4);
      arrays = {parts[0], parts[1], parts[2]};
      value = mx::dequantize(parts[0], parts[1], parts[2], 32, 4);
    }
    layer.stacks[i] = Parameter({kExperts, out, in}, Parameter::Kind::matrix);
    layer.stacks[i].set(arrays, spec);
    if (auto packed = pack_experts(arrays, spec, selection)) {
      layer.stacks[i].set_packed(packed);
    }
    layer.dense.push_back(value);
    layer.biases[i] = Parameter({kExperts, out}, Parameter::Kind::tensor);
    layer.biases[i].set({normal({kExperts, out}, i + 10), {}, {}});
  }
  return layer;
}

// Every expert for every token, one dense product after the other.
mx::array expected_mixture(
    const Layer& layer,
    ExpertActivation activation,
    const mx::array& x,
    const mx::array& experts,
    const mx::array& weights) {
  auto product = [&](int i, const mx::array& in, int e) {
    mx::array y = mx::matmul(in, mx::transpose(mx::take(layer.dense[i], e, 0)));
    return layer.has_bias ? mx::add(y, mx::take(layer.biases[i].value(), e, 0))
                          : y;
  };
  std::vector<mx::array> all;
  for (int e = 0; e < kExperts; ++e) {
    mx::array gate = product(0, x, e);
    mx::array up = product(1, x, e);
    mx::array inner = up;
    if (!layer.has_gate) {
      inner = activate(up, activation.function);
    } else if (activation.clamped) {
      gate = mx::minimum(gate, mx::array(7.0f));
      up = mx::add(
          mx::clip(up, mx::array(-7.0f), mx::array(7.0f)),
          mx::array(1.0f));
      inner = mx::multiply(
          mx::multiply(
              gate,
              mx::sigmoid(mx::multiply(gate, mx::array(1.702f)))),
          up);
    } else {
      inner = mx::multiply(activate(gate, activation.function), up);
    }
    all.push_back(product(2, inner, e));
  }
  mx::array chosen =
      mx::take_along_axis(mx::stack(all, -2), mx::expand_dims(experts, -1), -2);
  return mx::sum(mx::multiply(chosen, mx::expand_dims(weights, -1)), -2);
}

mx::array choices(const mx::Shape& shape, int seed) {
  return mx::random::randint(
      0,
      kExperts,
      shape,
      mx::uint32,
      mx::random::key(seed));
}

Selection select_with(InstructionSet set, int threads) {
  Selection selection = select_best();
  selection.instruction_set = set;
  selection.threads = std::make_shared<ThreadPool>(threads);
  return selection;
}

TEST(ExpertMlp, AgreesWithEveryExpertsProducts) {
  for (InstructionSet set : available_instruction_sets()) {
    Selection selection = select_with(set, 2);
    for (const auto& activation :
         {kSilu,
          kClamped,
          ExpertActivation{.function = Activation::gelu_tanh},
          ExpertActivation{.function = Activation::relu_squared}}) {
      for (bool quantized : {false, true}) {
        for (bool bias : {false, true}) {
          Layer layer = make_layer(quantized, bias, selection);
          layer.has_gate = activation.function != Activation::relu_squared;
          ASSERT_TRUE(expert_mlp_covers(layer.weights(), selection));
          for (int tokens : {1, 2, 7, 60}) {
            mx::array x = normal({1, tokens, kHidden}, tokens);
            mx::array ids = choices({1, tokens, 3}, tokens + 1);
            mx::array w = normal({1, tokens, 3}, tokens + 2);
            mx::array y =
                expert_mlp(x, ids, w, layer.weights(), activation, selection);
            EXPECT_EQ(y.shape(), x.shape());
            EXPECT_LT(
                relative_error(
                    y,
                    expected_mixture(layer, activation, x, ids, w)),
                3e-4)
                << to_string(set) << quantized << bias << tokens;
          }
        }
      }
    }
  }
}

TEST(ExpertMlp, ATokenHasTheSameBitsInEveryCompany) {
  for (InstructionSet set : available_instruction_sets()) {
    std::optional<mx::array> expected;
    mx::array x = normal({70, kHidden}, 1);
    mx::array ids = choices({70, 2}, 2);
    mx::array w = normal({70, 2}, 3);
    for (int threads : {1, 2, 3, 8}) {
      Selection selection = select_with(set, threads);
      Layer layer = make_layer(true, false, selection);
      auto mixture = [&](int from, int to) {
        return expert_mlp(
            mx::slice(x, {from, 0}, {to, kHidden}),
            mx::slice(ids, {from, 0}, {to, 2}),
            mx::slice(w, {from, 0}, {to, 2}),
            layer.weights(),
            kSilu,
            selection);
      };
      mx::array all = mixture(0, 70);
      if (!expected) {
        expected = all;
      }
      EXPECT_TRUE(same_bits(all, *expected)) << threads;
      for (auto [from, to] : {std::pair{0, 1}, {69, 70}, {17, 19}, {5, 60}}) {
        EXPECT_TRUE(same_bits(
            mixture(from, to),
            mx::slice(*expected, {from, 0}, {to, kHidden})))
            << to_string(set) << from;
      }
    }
  }
}

TEST(ExpertMlp, GradientsAreTheDerivatives) {
  Selection selection = select_best();
  selection.activations = ActivationForm::float32;
  mx::array ids = choices({4, 2}, 2);
  for (bool gated : {true, false}) {
    Layer layer = make_layer(false, true, selection);
    layer.has_gate = gated;
    EXPECT_TRUE(check_gradient(
        [&](const std::vector<mx::array>& inputs) {
          return std::vector{expert_mlp(
              inputs[0],
              ids,
              inputs[1],
              layer.weights(),
              kSilu,
              selection)};
        },
        {mx::multiply(normal({4, kHidden}, 1), mx::array(0.3f)),
         normal({4, 2}, 3)}));
  }
}

TEST(ExpertMlp, AnExpertThatIsNotThereGivesNoNumbers) {
  Selection selection = select_best();
  Layer layer = make_layer(true, false, selection);
  mx::array y = expert_mlp(
      normal({2, kHidden}, 1),
      mx::array({1, kExperts, 0, 2}, {2, 2}, mx::int32),
      mx::ones({2, 2}),
      layer.weights(),
      kSilu,
      selection);
  EXPECT_TRUE(mx::all(mx::isnan(mx::take(y, 0, 0))).item<bool>());
  EXPECT_TRUE(mx::all(mx::isfinite(mx::take(y, 1, 0))).item<bool>());
}

TEST(ExpertMlp, CoversPackedStacksOfWholePanelsOnly) {
  Selection best = select_best();
  Selection fallback;
  fallback.fallback = true;
  Layer packed = make_layer(true, false, best);
  EXPECT_FALSE(expert_mlp_covers(packed.weights(), fallback));
  Layer plain = make_layer(true, false, fallback);
  EXPECT_FALSE(expert_mlp_covers(plain.weights(), best));
  Layer narrow = make_layer(false, false, best, 40);
  EXPECT_FALSE(expert_mlp_covers(narrow.weights(), best));
}

}  // namespace
}  // namespace mlxx::kernels
