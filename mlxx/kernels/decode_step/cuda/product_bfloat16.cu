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
// strip. Weights of 16 bits leave time enough for one block to multiply, which
// then loses nothing between kernels.
ProductShape
product_shape(WeightFormat format, int strips, int tiles, bool hopper) {
  ProductShape shape;
  shape.rows = strips >= 1024 ? RowsShape::many_strips
      : strips >= 320         ? RowsShape::some_strips
                              : RowsShape::few_strips;
  int device = 0;
  int processors = 0;
  int shared = 0;
  if (hopper && format == WeightFormat::bfloat16 &&
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(
          &processors,
          cudaDevAttrMultiProcessorCount,
          device) == cudaSuccess &&
      cudaDeviceGetAttribute(
          &shared,
          cudaDevAttrMaxSharedMemoryPerBlockOptin,
          device) == cudaSuccess &&
      processors > 0 && shared > kStreamShared) {
    // Few strips go one by one where two at once would leave half a round.
    int each = (strips + processors - 1) / processors;
    shape.rows =
        each <= 4 && each % 2 == 1 ? RowsShape::stream_1 : RowsShape::stream_2;
    shape.blocks = processors;
  }
  int blocks = (strips + 7) / 8;
  while (hopper && shape.ranks < 8 && blocks * shape.ranks < 192 &&
         tiles / (2 * shape.ranks) >= 16) {
    shape.ranks *= 2;
  }
  return shape;
}

}  // namespace mlxx::kernels::cuda
