#pragma once

#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"

namespace mlxx::kernels {

// Rows of a matrix that is resident in the form of the CUDA decode step. Where
// operations of MLX need it, MLX's form is made for the moment.
class CudaPacked : public PackedWeights {
 public:
  // `quantization` absent: bfloat16. The plug-in stays loaded.
  CudaPacked(
      const CudaPlugin& plugin,
      std::shared_ptr<const CudaMatrix> whole,
      cuda::RowOrder order,
      int first,
      int rows,
      std::optional<QuantizationSpec> quantization)
      : plugin_(plugin),
        whole_(std::move(whole)),
        order_(order),
        first_(first),
        rows_(rows),
        quantization_(std::move(quantization)) {}

  // In x's dtype; differentiable in x.
  mx::array matmul(const mx::array& x) const override;
  mx::array take_rows(const mx::array& ids) const override;
  WeightArrays restore() const override;
  // Its part of the whole.
  size_t nbytes() const override;

 private:
  const CudaPlugin& plugin_;
  std::shared_ptr<const CudaMatrix> whole_;
  cuda::RowOrder order_;
  int first_;
  int rows_;
  std::optional<QuantizationSpec> quantization_;
};

// In which form the step keeps a matrix, rows and pointers unset. Nothing, and
// the reason in `why`, for one that it has none for. Half precision becomes
// bfloat16, also of scales.
std::optional<cuda::PackedMatrix> cuda_form(
    const Parameter& parameter,
    std::string& why);

}  // namespace mlxx::kernels
