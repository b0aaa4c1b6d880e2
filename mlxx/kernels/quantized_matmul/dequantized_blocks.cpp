#include "mlxx/kernels/quantized_matmul/dequantized_blocks.h"

#include <algorithm>

namespace mlxx::kernels {
namespace {

// Below this many rows reading the packed weights once per row is cheaper
// than expanding them (measured at 2048 x 2048 with OpenBLAS).
constexpr int kFewRows = 8;
// Largest dequantized block: stays in the last-level cache.
constexpr int64_t kBlockBytes = int64_t{8} << 20;

// Affine scales in float32; the other modes store encoded bytes.
std::optional<mx::array> as_float32(const std::optional<mx::array>& scales) {
  if (scales && mx::issubdtype(scales->dtype(), mx::floating)) {
    return mx::astype(*scales, mx::float32);
  }
  return scales;
}

}  // namespace

DequantizedBlocks::DequantizedBlocks(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization)
    : arrays_{arrays.weight, as_float32(arrays.scales), as_float32(arrays.biases)},
      quantization_(quantization),
      in_features_(arrays.weight.shape(1) * 32 / quantization.bits) {
  std::vector<mx::array> parts{arrays_.weight, *arrays_.scales};
  if (arrays_.biases) {
    parts.push_back(*arrays_.biases);
  }
  mx::eval(parts);
}

mx::array DequantizedBlocks::dequantize(const WeightArrays& rows) const {
  return mx::dequantize(
      rows.weight,
      *rows.scales,
      rows.biases,
      quantization_.group_size,
      quantization_.bits,
      quantization_.mode,
      std::nullopt,
      mx::float32);
}

mx::array DequantizedBlocks::matmul(const mx::array& x) const {
  int64_t rows = static_cast<int64_t>(x.size()) / in_features_;
  mx::array input = mx::astype(x, mx::float32);
  if (rows < kFewRows) {
    return mx::astype(
        mx::quantized_matmul(
            input,
            arrays_.weight,
            *arrays_.scales,
            arrays_.biases,
            true,
            quantization_.group_size,
            quantization_.bits,
            quantization_.mode),
        x.dtype());
  }
  int out = arrays_.weight.shape(0);
  int block = static_cast<int>(std::clamp<int64_t>(
      kBlockBytes / (int64_t{4} * in_features_),
      64,
      out > 64 ? out : 64));
  auto slice_rows = [](const mx::array& a, int from, int to) {
    return mx::slice(a, {from, 0}, {to, a.shape(1)});
  };
  std::vector<mx::array> products;
  for (int from = 0; from < out; from += block) {
    int to = std::min(from + block, out);
    WeightArrays part{
        slice_rows(arrays_.weight, from, to),
        slice_rows(*arrays_.scales, from, to),
        arrays_.biases ? std::optional(slice_rows(*arrays_.biases, from, to))
                       : std::nullopt};
    products.push_back(mx::matmul(input, mx::transpose(dequantize(part))));
  }
  mx::array result =
      products.size() == 1 ? products[0] : mx::concatenate(products, -1);
  return mx::astype(result, x.dtype());
}

mx::array DequantizedBlocks::take_rows(const mx::array& ids) const {
  return dequantize(
      {mx::take(arrays_.weight, ids, 0),
       mx::take(*arrays_.scales, ids, 0),
       arrays_.biases ? std::optional(mx::take(*arrays_.biases, ids, 0))
                      : std::nullopt});
}

size_t DequantizedBlocks::nbytes() const {
  return arrays_.weight.nbytes() + arrays_.scales->nbytes() +
      (arrays_.biases ? arrays_.biases->nbytes() : 0);
}

}  // namespace mlxx::kernels
