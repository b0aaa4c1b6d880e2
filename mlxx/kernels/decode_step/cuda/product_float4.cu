#include "mlxx/kernels/decode_step/cuda/product_choice.cuh"

namespace mlxx::kernels::cuda {

Status launch_float4(
    const Product& p,
    WeightFormat format,
    ProductShape shape,
    bool hopper,
    Stream stream) {
  if (format == WeightFormat::mxfp4) {
    return launch_tiles<Tile<WeightFormat::mxfp4, 32>>(
        p,
        shape,
        hopper,
        stream);
  }
  return launch_tiles<Tile<WeightFormat::nvfp4, 16>>(p, shape, hopper, stream);
}

}  // namespace mlxx::kernels::cuda
