#include "mlxx/nn/switch_mlp.h"

#include <map>

#include <gtest/gtest.h>

#include "mlxx/kernels/expert_matmul/expert_matmul.h"
#include "mlxx/kernels/swiglu/swiglu.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::nn {
namespace {

constexpr int kExperts = 6;
constexpr int kHidden = 64;
constexpr int kInner = 96;

SwitchMlpOptions options_of(bool bias) {
  return {
      .experts = kExperts,
      .hidden_size = kHidden,
      .intermediate_size = kInner,
      .bias = bias,
      .activation = bias ? clamped_gated : silu_gated};
}

enum class Resident { plain, quantized, packed, packed_quantized };

// The same numbers in each form, by name.
std::map<std::string, mx::array> fill(SwitchMlp& mlp, Resident form) {
  std::map<std::string, mx::array> dense;
  kernels::Selection best = kernels::select_best();
  int seed = 1;
  mlp.visit("m", [&](const std::string& name, Parameter& parameter) {
    mx::array value =
        mx::multiply(normal(parameter.shape(), seed++), mx::array(0.3f));
    WeightArrays arrays{value, std::nullopt, std::nullopt};
    std::optional<QuantizationSpec> spec;
    bool is_matrix = parameter.kind() == Parameter::Kind::matrix;
    bool quantized =
        form == Resident::quantized || form == Resident::packed_quantized;
    if (is_matrix && quantized) {
      spec = QuantizationSpec{32, 4, "affine"};
      auto parts = mx::quantize(value, 32, 4);
      arrays = {parts[0], parts[1], parts[2]};
      value = mx::dequantize(parts[0], parts[1], parts[2], 32, 4);
    }
    mx::eval(value);
    dense.emplace(name, value);
    parameter.set(arrays, spec);
    if (is_matrix &&
        (form == Resident::packed || form == Resident::packed_quantized)) {
      parameter.set_packed(kernels::pack_experts(arrays, spec, best));
    }
  });
  if (form == Resident::packed || form == Resident::packed_quantized) {
    mlp.use(best);
  }
  return dense;
}

mx::array choices(const mx::Shape& shape, int seed) {
  return mx::random::randint(
      0,
      kExperts,
      shape,
      mx::uint32,
      mx::random::key(seed));
}

// Every expert for every token, one dense product after the other.
mx::array expected_mlp(
    const std::map<std::string, mx::array>& weights,
    const mx::array& x,
    const mx::array& experts,
    bool bias) {
  auto product = [&](const char* name, const mx::array& in, int e) {
    std::string module = std::string("m.") + name;
    mx::array w = mx::take(weights.at(module + ".weight"), e, 0);
    mx::array y = mx::matmul(in, mx::transpose(w));
    return bias ? mx::add(y, mx::take(weights.at(module + ".bias"), e, 0)) : y;
  };
  std::vector<mx::array> all;
  for (int e = 0; e < kExperts; ++e) {
    mx::array gate = product("gate_proj", x, e);
    mx::array up = product("up_proj", x, e);
    mx::array inner = mx::multiply(mx::multiply(gate, mx::sigmoid(gate)), up);
    if (bias) {
      gate = mx::minimum(gate, mx::array(7.0f));
      up = mx::clip(up, mx::array(-7.0f), mx::array(7.0f));
      inner = mx::multiply(
          mx::multiply(
              gate,
              mx::sigmoid(mx::multiply(gate, mx::array(1.702f)))),
          mx::add(up, mx::array(1.0f)));
    }
    all.push_back(product("down_proj", inner, e));
  }
  // [..., experts, hidden]
  return mx::take_along_axis(
      mx::stack(all, -2),
      mx::expand_dims(experts, -1),
      -2);
}

// Sorted from 64 routed rows on: both sides of it.
TEST(SwitchMlp, AgreesWithEveryExpertsProducts) {
  for (Resident form :
       {Resident::plain,
        Resident::quantized,
        Resident::packed,
        Resident::packed_quantized}) {
    for (bool bias : {false, true}) {
      SwitchMlp mlp(options_of(bias));
      auto weights = fill(mlp, form);
      for (mx::Shape shape :
           {mx::Shape{1, 1, 2}, {1, 31, 2}, {1, 32, 2}, {2, 23, 3}, {70, 1}}) {
        mx::array ids = choices(shape, 3);
        mx::Shape in(shape.begin(), shape.end() - 1);
        in.push_back(kHidden);
        mx::array x = normal(in, 4);
        mx::array y = mlp(x, ids);
        shape.push_back(kHidden);
        EXPECT_EQ(y.shape(), shape);
        EXPECT_LT(relative_error(y, expected_mlp(weights, x, ids, bias)), 1e-3)
            << static_cast<int>(form) << bias;
      }
    }
  }
}

TEST(SwitchMlp, PlainRowsAreSortedFromSixtyFourOn) {
  SwitchMlp mlp(options_of(false));
  auto weights = fill(mlp, Resident::plain);
  auto gathered = [&](const char* name,
                      const mx::array& x,
                      const mx::array& ids,
                      bool sorted) {
    return mx::gather_mm(
        x,
        mx::swapaxes(weights.at(std::string("m.") + name + ".weight"), -1, -2),
        std::nullopt,
        ids,
        sorted);
  };
  auto layers = [&](const mx::array& x, const mx::array& ids, bool sorted) {
    mx::array inner = kernels::swiglu(
        gathered("gate_proj", x, ids, sorted),
        gathered("up_proj", x, ids, sorted),
        {});
    return gathered("down_proj", inner, ids, sorted);
  };
  mx::array ids = choices({1, 31, 2}, 1);
  mx::array x = normal({1, 31, kHidden}, 2);
  mx::array y = layers(mx::expand_dims(x, {-2, -3}), ids, false);
  EXPECT_TRUE(same_bits(mlp(x, ids), mx::squeeze(y, -2)));

  ids = choices({1, 32, 2}, 1);
  x = normal({1, 32, kHidden}, 2);
  mx::array order = mx::argsort(mx::flatten(ids));
  mx::array token = mx::floor_divide(order, mx::array(2, mx::uint32));
  y = layers(
      mx::expand_dims(mx::take(mx::squeeze(x, 0), token, 0), 1),
      mx::take(mx::flatten(ids), order, 0),
      true);
  y = mx::take(mx::squeeze(y, 1), mx::argsort(order), 0);
  EXPECT_TRUE(same_bits(mlp(x, ids), mx::reshape(y, {1, 32, 2, kHidden})));
}

TEST(SwitchMlp, APackedRowHasTheSameBitsInEveryCompany) {
  SwitchMlp mlp(options_of(false));
  fill(mlp, Resident::packed_quantized);
  mx::array x = normal({1, 60, kHidden}, 1);
  mx::array ids = choices({1, 60, 2}, 2);
  mx::array all = mlp(x, ids);
  for (auto [from, to] : {std::pair{0, 1}, {59, 60}, {11, 13}, {8, 50}}) {
    EXPECT_TRUE(same_bits(
        mlp(mx::slice(x, {0, from, 0}, {1, to, kHidden}),
            mx::slice(ids, {0, from, 0}, {1, to, 2})),
        mx::slice(all, {0, from, 0, 0}, {1, to, 2, kHidden})));
  }
}

TEST(SwitchMlp, GradientsAgreeInEveryForm) {
  mx::array ids = choices({1, 40, 2}, 2);
  auto gradient = [&](Resident form) {
    SwitchMlp mlp(options_of(true));
    fill(mlp, form);
    return mx::grad([&](const mx::array& x) {
      mx::array y = mlp(x, ids);
      return mx::sum(mx::multiply(y, normal(y.shape(), 3)));
    })(normal({1, 40, kHidden}, 1));
  };
  EXPECT_LT(
      relative_error(gradient(Resident::packed), gradient(Resident::plain)),
      1e-3);
}

TEST(SwitchMlp, AMixtureIsTheWeightedSum) {
  mx::array ids = choices({1, 40, 2}, 2);
  mx::array x = normal({1, 40, kHidden}, 1);
  mx::array w = normal({1, 40, 2}, 3);
  for (Resident form :
       {Resident::plain, Resident::packed, Resident::packed_quantized}) {
    for (bool bias : {false, true}) {
      SwitchMlp mlp(options_of(bias));
      fill(mlp, form);
      EXPECT_LT(
          relative_error(
              mlp.mixture(x, ids, w),
              combine_experts(mlp(x, ids), w)),
          1e-4)
          << static_cast<int>(form) << bias;
    }
  }
  SwitchMlp mlp(options_of(false));
  fill(mlp, Resident::packed);
  EXPECT_EQ(
      mlp.mixture(mx::astype(x, mx::bfloat16), ids, w).dtype(),
      mx::bfloat16);
}

TEST(CombineExperts, IsTheWeightedSum) {
  mx::array y = normal({2, 3, 4, 8}, 1);
  mx::array w = normal({2, 3, 4}, 2);
  mx::array sum = combine_experts(y, w);
  EXPECT_EQ(sum.shape(), (mx::Shape{2, 3, 8}));
  mx::array expected = mx::squeeze(mx::matmul(mx::expand_dims(w, -2), y), -2);
  EXPECT_LT(relative_error(sum, expected), 1e-6);
}

TEST(SwitchLinear, NamesEachParameterOnce) {
  SwitchMlp mlp(options_of(true));
  std::vector<std::string> names;
  mlp.visit("m", [&](const std::string& name, Parameter& parameter) {
    names.push_back(name);
    EXPECT_EQ(parameter.shape()[0], kExperts);
  });
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "m.gate_proj.weight",
          "m.gate_proj.bias",
          "m.up_proj.weight",
          "m.up_proj.bias",
          "m.down_proj.weight",
          "m.down_proj.bias"}));
}

}  // namespace
}  // namespace mlxx::nn
