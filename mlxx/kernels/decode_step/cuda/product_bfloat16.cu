#include "mlxx/kernels/decode_step/cuda/product_choice.cuh"

namespace mlxx::kernels::cuda {

Status launch_bfloat16(
    const Product& p,
    ProductShape shape,
    bool hopper,
    Stream stream) {
  return launch_tiles<Tile<WeightFormat::bfloat16, 0>>(
      p,
      shape,
      hopper,
      stream);
}

// Measured on an H200 with Llama's shapes: with thousands of strips small
// blocks hide one another's ends; with few, all warps of a block share one
// strip.
ProductShape product_shape(int strips, int tiles, bool hopper) {
  ProductShape shape;
  shape.rows = strips >= 1024 ? RowsShape::many_strips
      : strips >= 320         ? RowsShape::some_strips
                              : RowsShape::few_strips;
  int blocks = (strips + 7) / 8;
  while (hopper && shape.ranks < 8 && blocks * shape.ranks < 192 &&
         tiles / (2 * shape.ranks) >= 16) {
    shape.ranks *= 2;
  }
  return shape;
}

}  // namespace mlxx::kernels::cuda
