#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/core/cpu_kernel.h"
#include "mlxx/core/kernel_platform.h"
#include "mlxx/core/mlx.h"

namespace mlxx {

// The body of a kernel's function for a GPU. MLX writes the signature around
// it: a pointer for each input and output by its name, and where the body
// mentions them `<input>_shape`, `<input>_strides` and `<input>_ndim`. A 0-d
// input is a reference on Metal and a pointer on CUDA and has none of those.
// Metal's attributes (thread_position_in_grid, ...) are there by name, CUDA's
// body uses threadIdx and friends. Template values are constants and types.
struct DeviceKernelSource {
  std::string source;
  std::string header = {};  // before the function: includes, functions
  KernelRequirement requirement = {};  // else the kernel counts as missing
  int shared_memory = 0;               // CUDA only: dynamic, bytes per block
};

// One use of a kernel.
struct CustomKernelCall {
  std::vector<mx::array> inputs = {};
  std::vector<mx::Shape> output_shapes = {};
  std::vector<mx::Dtype> output_dtypes = {};
  TemplateValues template_values = {};
  // Threads in all, not groups. CUDA rounds up to whole groups, so its source
  // must check that a thread is inside; Metal cuts the last groups.
  KernelSize grid = {};
  KernelSize threadgroup = {};
  // What every output holds before; without it, anything.
  std::optional<float> init_value = std::nullopt;
  // Unset: the default stream of the default device.
  mx::StreamOrDevice stream = {};
};

struct CustomKernelSpec {
  // Plain MLX operations with the kernel's result.
  using Fallback =
      std::function<std::vector<mx::array>(const CustomKernelCall& call)>;
  // One cotangent for each input of `call`, of its shape and dtype.
  using Gradient = std::function<std::vector<mx::array>(
      const CustomKernelCall& call,
      const std::vector<mx::array>& cotangents,
      const std::vector<mx::array>& outputs)>;

  std::string name;  // this and the names below: C identifiers
  std::vector<std::string> input_names = {};
  std::vector<std::string> output_names = {};
  std::optional<DeviceKernelSource> metal = std::nullopt;
  std::optional<DeviceKernelSource> cuda = std::nullopt;
  CpuKernel cpu = nullptr;
  // Inputs that are not row-contiguous are copied first.
  bool ensure_row_contiguous = true;
  // Metal: outputs are `device atomic<T>*`. CUDA's atomicAdd and the CPU take
  // them as they are.
  bool atomic_outputs = false;
  // Runs where there is no code for the backend, or none that fits.
  Fallback fallback = nullptr;
  // Unset: that of the fallback; unset too: taking a gradient is an error.
  Gradient gradient = nullptr;
};

// Makes what launches the kernel on a GPU: mx::fast::metal_kernel or
// cuda_kernel with that name and body. Tests replace it.
using DeviceKernelMaker = std::function<mx::fast::CustomKernelFunction(
    Backend backend,
    const std::string& name,
    const std::string& body,
    const CustomKernelSpec& spec)>;

DeviceKernelMaker mlx_kernel_maker();

// A kernel of our own for several backends, called in one way on all.
// Launchers are made at the first call for a combination of dtypes and
// template values: MLX throws when a CUDA kernel is made without CUDA. Copies
// share them; any thread may call.
//
// Results are lazy, may be used inside compile() with fixed shapes, and have
// the gradient that the spec says. A shapeless CompiledFunction gets the
// fallback. Forward derivatives are the fallback's, on the CPU only; vmap is
// refused.
class CustomKernel {
 public:
  // invalid_request if the spec is not usable: no outputs, a name that is not
  // an identifier or stands twice, neither code nor fallback.
  explicit CustomKernel(CustomKernelSpec spec);
  CustomKernel(
      CustomKernelSpec spec,
      KernelPlatform platform,
      DeviceKernelMaker maker);

  // The outputs, in the order of their names. If all are empty nothing runs.
  // invalid_request if counts, shapes, sizes or template values are wrong;
  // unsupported, naming kernel and backend, if the backend of the call's
  // stream has neither code nor fallback; internal if MLX fails to make it.
  // What a CPU function throws comes out of the evaluation, with its words in
  // MLX's own exception.
  std::vector<mx::array> operator()(const CustomKernelCall& call) const;

  // The result of the plain operations: unsupported if the spec has none,
  // internal if they give other shapes or dtypes than the call asks for.
  std::vector<mx::array> fallback(const CustomKernelCall& call) const;

  // Why the kernel's own code does not run there; nothing if it does.
  std::optional<std::string> missing(Backend backend) const;

 private:
  class State;
  const State& state() const;

  std::shared_ptr<const State> state_;
};

}  // namespace mlxx
