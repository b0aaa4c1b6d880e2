#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mlxx/base/error.h"
#include "mlxx/core/mlx.h"

namespace mlxx {

// Threads along each axis; all at least 1.
struct KernelSize {
  int x = 1;
  int y = 1;
  int z = 1;
  bool operator==(const KernelSize&) const = default;
};

// What a kernel is compiled for: an int, a bool or a dtype under a name.
using TemplateValue = mx::fast::TemplateArg;
using TemplateValues = std::vector<std::pair<std::string, TemplateValue>>;

// An input of a CPU kernel. Its memory is there while the function runs.
struct CpuKernelInput {
  std::string_view kernel;
  std::string_view name;
  const void* data;
  mx::Shape shape;
  mx::Strides strides;  // in elements
  mx::Dtype dtype;
  size_t size;  // elements

  // invalid_request if T is not the dtype's C++ type.
  template <typename T>
  const T* as() const;
};

struct CpuKernelOutput {
  std::string_view kernel;
  std::string_view name;
  void* data;  // row-contiguous
  mx::Shape shape;
  mx::Dtype dtype;
  size_t size;

  template <typename T>
  T* as() const;
};

struct CpuKernelArguments {
  std::string_view kernel;
  std::vector<CpuKernelInput> inputs;
  std::vector<CpuKernelOutput> outputs;
  KernelSize grid;
  KernelSize threadgroup;
  TemplateValues template_values;

  // A template value by its name; invalid_request if there is none or if it
  // is of another kind.
  int integer(std::string_view name) const;
  bool flag(std::string_view name) const;
  mx::Dtype dtype(std::string_view name) const;
};

// Computes all outputs of a kernel: called once, not once per thread of the
// grid, on the thread of MLX's CPU stream.
using CpuKernel = std::function<void(const CpuKernelArguments& arguments)>;

// What stays the same for all calls of one kernel.
struct CpuKernelCode {
  std::string name;
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  CpuKernel function;
};

struct CpuKernelLaunch {
  KernelSize grid;
  KernelSize threadgroup;
  TemplateValues template_values;
  std::optional<float> init_value;
  bool operator==(const CpuKernelLaunch&) const = default;
};

// What MLX asks for when it differentiates a kernel.
struct CpuKernelDerivatives {
  // A cotangent for each primal.
  std::function<std::vector<mx::array>(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& cotangents,
      const std::vector<mx::array>& outputs)>
      vjp;
  // A tangent for each output, from those of the primals at `argnums`.
  std::function<std::vector<mx::array>(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& tangents,
      const std::vector<int>& argnums)>
      jvp;
};

// Lazy outputs that `code` computes on a CPU stream. Counts must fit.
// `derivatives` are needed only if an input is traced.
std::vector<mx::array> make_cpu_kernel(
    std::shared_ptr<const CpuKernelCode> code,
    CpuKernelLaunch launch,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::Shape>& output_shapes,
    const std::vector<mx::Dtype>& output_dtypes,
    mx::Stream stream,
    CpuKernelDerivatives derivatives);

// invalid_request: the kernel's array `name` of `found` was read as `wanted`.
[[noreturn]] void fail_dtype(
    std::string_view kernel,
    std::string_view name,
    mx::Dtype found,
    mx::Dtype wanted);

template <typename T>
const T* CpuKernelInput::as() const {
  mx::Dtype wanted = mx::TypeToDtype<T>();
  if (dtype != wanted) {
    fail_dtype(kernel, name, dtype, wanted);
  }
  return static_cast<const T*>(data);
}

template <typename T>
T* CpuKernelOutput::as() const {
  mx::Dtype wanted = mx::TypeToDtype<T>();
  if (dtype != wanted) {
    fail_dtype(kernel, name, dtype, wanted);
  }
  return static_cast<T*>(data);
}

}  // namespace mlxx
