#pragma once

#include <string>
#include <vector>

#include "mlxx/core/custom_kernel.h"

namespace mlxx {

// One combination of dtypes, numbers of axes and template values of a kernel
// for CUDA.
struct CudaKernelText {
  std::string name;
  std::string source;             // all of it, with an extern "C" function
  std::vector<int> shape_inputs;  // of which the shape's numbers are passed
};

// The function that MLX would write around the body, without MLX's headers:
// they take seconds to compile. Shapes are numbers behind the outputs. Nothing
// if the body asks for more than shapes, or for dtypes that are not passed.
std::optional<CudaKernelText> write_cuda_kernel(
    const std::string& name,
    const std::string& body,
    const CustomKernelSpec& spec,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::Dtype>& output_dtypes,
    const TemplateValues& values);

// mx::fast::cuda_kernel, whose machine code MLX makes anew in every process:
// here it is kept in MLX_PTX_CACHE_DIR (which mlxx sets), by a digest of its
// text, for the default device's kind of GPU. MLX's own way where this one
// fails.
mx::fast::CustomKernelFunction make_kept_cuda_kernel(
    const std::string& name,
    const std::string& body,
    const CustomKernelSpec& spec);

}  // namespace mlxx
