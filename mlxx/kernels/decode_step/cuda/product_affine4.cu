#include "mlxx/kernels/decode_step/cuda/product_choice.cuh"

namespace mlxx::kernels::cuda {

Status launch_affine4(
    const Product& p,
    int group,
    ProductShape shape,
    bool hopper,
    Stream stream) {
  return launch_groups<WeightFormat::affine4>(p, group, shape, hopper, stream);
}

}  // namespace mlxx::kernels::cuda
