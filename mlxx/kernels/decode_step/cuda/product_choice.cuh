#pragma once

// Launches the products of one format: included by the source of each.

#include "mlxx/kernels/decode_step/cuda/kernel_launch.cuh"
#include "mlxx/kernels/decode_step/cuda/product_launch.cuh"
#include "mlxx/kernels/decode_step/cuda/rows_product.cuh"
#include "mlxx/kernels/decode_step/cuda/warpgroup_product.cuh"
#include "mlxx/kernels/decode_step/cuda/wide_product.cuh"

namespace mlxx::kernels::cuda {

template <typename TILE, int WARPS, int STRIPS>
Status launch_rows(const Product& p, bool hopper, Stream stream) {
  using Memory = RowsMemory<TILE, WARPS, STRIPS>;
  int blocks = (p.strips + STRIPS - 1) / STRIPS;
  return launch(
      rows_product<TILE, WARPS, STRIPS>,
      {dim3(blocks), WARPS * 32, Memory::kBytes, 1, hopper},
      stream,
      p);
}

template <typename TILE, int CORES>
Status launch_wide(const Product& p, int ranks, bool hopper, Stream stream) {
  // By groups of warps only where columns are not shared: what blocks of a
  // cluster then add up was wrong, and why is not known.
  if (hopper && ranks == 1) {
    using Memory = GroupMemory<TILE, CORES>;
    int blocks = (p.strips + kGroupStrips - 1) / kGroupStrips;
    return launch(
        group_product<TILE, CORES>,
        {dim3(blocks), kGroupThreads, Memory::kBytes, 1, hopper},
        stream,
        p,
        1);
  }
  using Memory = WideMemory<TILE, CORES>;
  int blocks = (p.strips + kWideStrips - 1) / kWideStrips;
  return launch(
      wide_product<TILE, CORES>,
      {dim3(blocks * ranks), 256, Memory::bytes(ranks), ranks, hopper},
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
      return launch_rows<TILE, 16, 1>(p, hopper, stream);
    case RowsShape::some_strips:
      return launch_rows<TILE, 16, 2>(p, hopper, stream);
    case RowsShape::many_strips:
      return launch_rows<TILE, 8, 2>(p, hopper, stream);
  }
  return cudaErrorInvalidValue;
}

// Affine matrices, whose groups are 32, 64 or 128 columns.
template <WeightFormat FORMAT>
Status launch_groups(
    const Product& p,
    int group,
    ProductShape shape,
    bool hopper,
    Stream stream) {
  switch (group) {
    case 32:
      return launch_tiles<Tile<FORMAT, 32>>(p, shape, hopper, stream);
    case 64:
      return launch_tiles<Tile<FORMAT, 64>>(p, shape, hopper, stream);
    case 128:
      return launch_tiles<Tile<FORMAT, 128>>(p, shape, hopper, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace mlxx::kernels::cuda
