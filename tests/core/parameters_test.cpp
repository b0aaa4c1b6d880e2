#include "mlxx/core/parameters.h"

#include <gtest/gtest.h>

namespace mlxx {
namespace {

class FakePacked : public PackedWeights {
 public:
  mx::array matmul(const mx::array& x) const override {
    return x;
  }
  mx::array take_rows(const mx::array& ids) const override {
    return ids;
  }
  WeightArrays restore() const override {
    return {mx::full({1}, 5.0f), std::nullopt, std::nullopt};
  }
  size_t nbytes() const override {
    return 7;
  }
};

TEST(Parameter, CountsLogicalNumbersAndResidentBytes) {
  Parameter parameter({8, 64}, Parameter::Kind::matrix);
  EXPECT_FALSE(parameter.is_set());
  EXPECT_EQ(parameter.count(), 512);
  EXPECT_EQ(parameter.nbytes(), 0u);

  auto parts = mx::quantize(mx::ones({8, 64}), 32, 4);
  parameter.set(
      {parts[0], parts[1], parts[2]},
      QuantizationSpec{32, 4, "affine"});
  EXPECT_EQ(parameter.count(), 512);
  EXPECT_EQ(parameter.nbytes(), 8u * 32u + 2u * 8u * 2u * 4u);
}

TEST(Parameter, PackedFormReplacesMlxs) {
  Parameter parameter({1}, Parameter::Kind::tensor);
  parameter.set({mx::zeros({1}), std::nullopt, std::nullopt});
  parameter.set_packed(nullptr);  // a device without such a form
  EXPECT_EQ(parameter.nbytes(), 4u);
  parameter.set_packed(std::make_shared<FakePacked>());
  EXPECT_TRUE(parameter.is_set());
  EXPECT_EQ(parameter.nbytes(), 7u);
  EXPECT_EQ(parameter.restore().weight.item<float>(), 5.0f);
}

}  // namespace
}  // namespace mlxx
