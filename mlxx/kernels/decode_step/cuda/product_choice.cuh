#pragma once

// Launches the products of one format: included by the source of each.

#include <algorithm>
#include <type_traits>

#include "mlxx/kernels/decode_step/cuda/kernel_launch.cuh"
#include "mlxx/kernels/decode_step/cuda/product_launch.cuh"
#include "mlxx/kernels/decode_step/cuda/rows_product.cuh"
#include "mlxx/kernels/decode_step/cuda/stream_product.cuh"
#include "mlxx/kernels/decode_step/cuda/wide_product.cuh"

namespace mlxx::kernels::cuda {

template <typename CALL>
Status call_for(Into into, const CALL& call) {
  switch (into) {
    case Into::rows:
      return call(std::integral_constant<Into, Into::rows>());
    case Into::residual:
      return call(std::integral_constant<Into, Into::residual>());
    case Into::activation:
      return call(std::integral_constant<Into, Into::activation>());
    case Into::floats:
      return call(std::integral_constant<Into, Into::floats>());
  }
  return cudaErrorInvalidValue;
}

template <typename TILE, int WARPS, int AHEAD, int STRIPS>
Status launch_rows(const Product& p, bool hopper, Stream stream) {
  const int blocks = (p.strips + STRIPS - 1) / STRIPS;
  return call_for(p.into, [&](auto into) {
    return launch(
        rows_product<TILE, WARPS, AHEAD, STRIPS, decltype(into)::value>,
        {dim3(blocks), WARPS * 32, 0, 1, hopper},
        stream,
        p);
  });
}

// The shared memory of blocks that stay leaves some to attention's.
inline constexpr int kStreamShared = 192 * 1024;

template <typename TILE, int STRIPS>
Status launch_stream(const Product& p, int blocks, Stream stream) {
  constexpr int kWarps = 16;
  using Memory = StreamMemory<TILE, kWarps, STRIPS, kStreamShared>;
  return call_for(p.into, [&](auto into) {
    return launch(
        stream_product<
            TILE,
            kWarps,
            STRIPS,
            kStreamShared,
            decltype(into)::value>,
        {dim3(std::min(blocks, p.strips)),
         kWarps * 32,
         Memory::kBytes,
         1,
         true},
        stream,
        p);
  });
}

template <typename TILE, int CORES>
Status launch_wide(const Product& p, int ranks, bool hopper, Stream stream) {
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
      return launch_rows<TILE, 16, 2, 1>(p, hopper, stream);
    case RowsShape::some_strips:
      return launch_rows<TILE, 16, 1, 2>(p, hopper, stream);
    case RowsShape::many_strips:
      return launch_rows<TILE, 8, 1, 2>(p, hopper, stream);
    case RowsShape::stream_1:
      if constexpr (TILE::kScaleBytes == 0) {
        return launch_stream<TILE, 1>(p, shape.blocks, stream);
      }
      break;
    case RowsShape::stream_2:
      if constexpr (TILE::kScaleBytes == 0) {
        return launch_stream<TILE, 2>(p, shape.blocks, stream);
      }
      break;
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
