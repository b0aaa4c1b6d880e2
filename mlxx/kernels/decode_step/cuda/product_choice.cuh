#pragma once

// Launches the products of one format: included by the source of each.

#include "kernel_launch.cuh"
#include "product_launch.cuh"
#include "rows_product.cuh"
#include "wide_product.cuh"

namespace mlxx::kernels::cuda {

template <typename TILE, int WARPS, int DEPTH, int STRIPS>
Status launch_rows(const Product& p, bool hopper, Stream stream) {
  int blocks = (p.strips + STRIPS - 1) / STRIPS;
  return launch(
      rows_product<TILE, WARPS, DEPTH, STRIPS>,
      {dim3(blocks), WARPS * 32, 0, 1, hopper},
      stream,
      p);
}

template <typename TILE, int CORES>
Status launch_wide(const Product& p, int ranks, bool hopper, Stream stream) {
  size_t shared = WideMemory<CORES>::bytes(ranks);
  Status status = cudaFuncSetAttribute(
      wide_product<TILE, CORES>,
      cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(WideMemory<CORES>::bytes(2)));
  if (status != cudaSuccess) {
    return status;
  }
  int blocks = (p.strips + kWideStrips - 1) / kWideStrips;
  return launch(
      wide_product<TILE, CORES>,
      {dim3(blocks * ranks), 256, shared, ranks, hopper},
      stream,
      p,
      ranks);
}

template <typename TILE>
Status
launch_tiles(const Product& p, ProductShape shape, bool hopper, Stream stream) {
  switch (p.x.row_cores) {
    case 2:
      return launch_wide<TILE, 2>(p, shape.ranks, hopper, stream);
    case 4:
      return launch_wide<TILE, 4>(p, shape.ranks, hopper, stream);
    case 8:
      return launch_wide<TILE, 8>(p, shape.ranks, hopper, stream);
  }
  switch (shape.rows) {
    case RowsShape::few_strips:
      return launch_rows<TILE, 16, 2, 1>(p, hopper, stream);
    case RowsShape::some_strips:
      return launch_rows<TILE, 16, 1, 2>(p, hopper, stream);
    case RowsShape::many_strips:
      return launch_rows<TILE, 8, 1, 2>(p, hopper, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace mlxx::kernels::cuda
