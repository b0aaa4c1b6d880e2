#include "mlxx/kernels/decode_step/cuda/product_choice.cuh"

namespace mlxx::kernels::cuda {

Status launch_affine8(
    const Product& p,
    int group,
    ProductShape shape,
    bool hopper,
    Stream stream) {
  constexpr WeightFormat kFormat = WeightFormat::affine8;
  switch (group) {
    case 32:
      return launch_tiles<Tile<kFormat, 32>>(p, shape, hopper, stream);
    case 64:
      return launch_tiles<Tile<kFormat, 64>>(p, shape, hopper, stream);
    case 128:
      return launch_tiles<Tile<kFormat, 128>>(p, shape, hopper, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace mlxx::kernels::cuda
