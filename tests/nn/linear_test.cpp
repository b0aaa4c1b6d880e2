#include "mlxx/nn/linear.h"

#include <gtest/gtest.h>

#include "mlxx/nn/embedding.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::nn {
namespace {

std::vector<std::string> names_of(auto& module) {
  std::vector<std::string> names;
  module.visit("m", [&](const std::string& name, Parameter&) {
    names.push_back(name);
  });
  return names;
}

TEST(Linear, NamesEachParameterOnce) {
  Linear plain(64, 8, false);
  Linear biased(64, 8, true);
  EXPECT_EQ(names_of(plain), (std::vector<std::string>{"m.weight"}));
  EXPECT_EQ(names_of(biased), (std::vector<std::string>{"m.weight", "m.bias"}));
}

TEST(Linear, DenseBiasIsFusedAndQuantizedBiasIsAdded) {
  mx::array w = normal({8, 64}, 1);
  mx::array b = normal({8}, 2);
  mx::array x = normal({1, 3, 64}, 3);
  Linear linear(64, 8, true);
  auto set = [&](bool quantized) {
    linear.visit("m", [&](const std::string& name, Parameter& parameter) {
      if (name == "m.bias") {
        parameter.set({b, std::nullopt, std::nullopt});
      } else if (quantized) {
        auto parts = mx::quantize(w, 32, 4);
        parameter.set(
            {parts[0], parts[1], parts[2]},
            QuantizationSpec{32, 4, "affine"});
      } else {
        parameter.set({w, std::nullopt, std::nullopt});
      }
    });
  };
  set(false);
  EXPECT_TRUE(same_bits(linear(x), mx::addmm(b, x, mx::transpose(w))));
  set(true);
  auto parts = mx::quantize(w, 32, 4);
  mx::array product = mx::quantized_matmul(
      x,
      parts[0],
      parts[1],
      parts[2],
      true,
      32,
      4,
      "affine");
  EXPECT_TRUE(same_bits(linear(x), mx::add(product, b)));
}

TEST(Embedding, QuantizedTableServesBothEnds) {
  mx::array w = normal({10, 64}, 1);
  auto parts = mx::quantize(w, 32, 8);
  Embedding table(10, 64);
  table.visit("m", [&](const std::string&, Parameter& parameter) {
    parameter.set(
        {parts[0], parts[1], parts[2]},
        QuantizationSpec{32, 8, "affine"});
  });
  int picks[] = {9, 0, 9};
  mx::array ids(picks, {1, 3}, mx::int32);
  mx::array dense = mx::dequantize(parts[0], parts[1], parts[2], 32, 8);
  EXPECT_TRUE(same_bits(table(ids), mx::take(dense, ids, 0)));
  mx::array x = normal({1, 2, 64}, 2);
  EXPECT_LT(
      relative_error(table.as_linear(x), mx::matmul(x, mx::transpose(dense))),
      1e-5);
}

}  // namespace
}  // namespace mlxx::nn
