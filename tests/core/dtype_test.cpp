#include "mlxx/core/dtype.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/core/error_of.h"

namespace mlxx {
namespace {

TEST(Dtype, EveryNameLeadsToItsDtypeAndBack) {
  std::set<std::string_view> names;
  for (const auto& row : dtypes()) {
    EXPECT_EQ(dtype_name(row.dtype), row.name);
    EXPECT_EQ(find_dtype(row.name), row.dtype) << row.name;
    EXPECT_EQ(find_dtype(row.safetensors), row.dtype) << row.safetensors;
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_TRUE(names.insert(row.safetensors).second);
    EXPECT_EQ(
        parse_dtype(row.name, "here"),
        parse_dtype(row.safetensors, "here"));
  }
  EXPECT_EQ(dtypes().size(), 14u);
  EXPECT_EQ(find_dtype("bool_"), mx::bool_);
}

TEST(Dtype, SizeAndKindAreThoseOfMlx) {
  for (const auto& row : dtypes()) {
    mx::array one = mx::zeros({1}, row.dtype, mx::Device::cpu);
    EXPECT_EQ(one.nbytes(), static_cast<size_t>(row.size)) << row.name;
    EXPECT_EQ(is_float(row.dtype), mx::issubdtype(row.dtype, mx::floating))
        << row.name;
  }
}

TEST(Dtype, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char* name : {"", "float", "FLOAT32", "f32", "F8_E4M3", "bf16"}) {
    EXPECT_EQ(find_dtype(name), std::nullopt) << name;
  }
  EXPECT_ERROR(
      parse_dtype("float8", "--dtype"),
      "invalid_request",
      "[--dtype] unknown dtype 'float8', known are bool, uint8, uint16");
  EXPECT_ERROR(parse_dtype("", "x"), "invalid_request", "complex64");
  // A hostile name does not make a hostile message.
  EXPECT_LT(
      error_of([] { parse_dtype(std::string(1 << 20, 'x'), "x"); }).size(),
      400u);
}

}  // namespace
}  // namespace mlxx
