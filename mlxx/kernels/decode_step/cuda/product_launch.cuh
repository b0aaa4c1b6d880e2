#pragma once

#include "mlxx/kernels/decode_step/cuda/product_ends.cuh"

namespace mlxx::kernels::cuda {

// How a product of up to 8 rows is cut, of those compiled.
enum class RowsShape {
  few_strips,   // blocks of 16 warps and 1 strip
  some_strips,  // 16 warps and 2 strips
  many_strips,  // 8 warps and 2 strips
  // Weights of 16 bits, where kernels may start before the previous one has
  // ended: blocks that stay, of 16 warps, with 1 or 2 strips at once.
  stream_1,
  stream_2,
};
struct ProductShape {
  RowsShape rows = RowsShape::few_strips;
  int blocks = 1;  // that stay
  int ranks = 1;   // of a wide product: blocks that share columns
};
ProductShape
product_shape(WeightFormat format, int strips, int tiles, bool hopper);

// x.row_cores == 0: at most 8 rows. hopper: the device has clusters and
// dependent launches.
Status
launch_affine4(const Product&, int group, ProductShape, bool hopper, Stream);
Status
launch_affine8(const Product&, int group, ProductShape, bool hopper, Stream);
Status
launch_float4(const Product&, WeightFormat, ProductShape, bool hopper, Stream);
Status launch_bfloat16(const Product&, ProductShape, bool hopper, Stream);

inline Status launch_product(
    const Product& p,
    WeightFormat format,
    int group,
    ProductShape shape,
    bool hopper,
    Stream stream) {
  switch (format) {
    case WeightFormat::affine4:
      return launch_affine4(p, group, shape, hopper, stream);
    case WeightFormat::affine8:
      return launch_affine8(p, group, shape, hopper, stream);
    case WeightFormat::bfloat16:
      return launch_bfloat16(p, shape, hopper, stream);
    default:
      return launch_float4(p, format, shape, hopper, stream);
  }
}

}  // namespace mlxx::kernels::cuda
