#include "mlxx/core/dtype.h"

#include "mlxx/base/error.h"

namespace mlxx {

namespace {

// In the order of mx::Dtype::Val, which indexes it.
constexpr DtypeInfo kDtypes[] = {
    {mx::bool_, "bool", "BOOL", 1, false},
    {mx::uint8, "uint8", "U8", 1, false},
    {mx::uint16, "uint16", "U16", 2, false},
    {mx::uint32, "uint32", "U32", 4, false},
    {mx::uint64, "uint64", "U64", 8, false},
    {mx::int8, "int8", "I8", 1, false},
    {mx::int16, "int16", "I16", 2, false},
    {mx::int32, "int32", "I32", 4, false},
    {mx::int64, "int64", "I64", 8, false},
    {mx::float16, "float16", "F16", 2, true},
    {mx::float32, "float32", "F32", 4, true},
    {mx::float64, "float64", "F64", 8, true},
    {mx::bfloat16, "bfloat16", "BF16", 2, true},
    {mx::complex64, "complex64", "C64", 8, false},
};

constexpr bool is_in_order() {
  for (size_t i = 0; i < std::size(kDtypes); ++i) {
    if (static_cast<size_t>(kDtypes[i].dtype.val()) != i ||
        kDtypes[i].size != kDtypes[i].dtype.size()) {
      return false;
    }
  }
  return static_cast<size_t>(mx::Dtype::Val::complex64) + 1 ==
      std::size(kDtypes);
}
static_assert(is_in_order());

}  // namespace

std::span<const DtypeInfo> dtypes() {
  return kDtypes;
}

const DtypeInfo& dtype_info(mx::Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype.val())];
}

std::optional<mx::Dtype> find_dtype(std::string_view name) {
  if (name == "bool_") {
    return mx::bool_;
  }
  for (const auto& row : kDtypes) {
    if (row.name == name || row.safetensors == name) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

mx::Dtype parse_dtype(std::string_view name, std::string_view place) {
  if (auto dtype = find_dtype(name)) {
    return *dtype;
  }
  std::string known;
  for (const auto& row : kDtypes) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  fail(
      ErrorKind::invalid_request,
      place,
      "unknown dtype '{}', known are {}",
      name.substr(0, 64),
      known);
}

}  // namespace mlxx
