#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "mlxx/core/custom_kernel.h"

namespace mlxx {

// The launchers of one kernel on one GPU backend, made when first needed.
//
// MLX keeps what it compiled by name, and the name says less than the code
// depends on: with CUDA a second source, or other dtypes, under a known name
// would run the first one's code. So each combination gets a name of its own.
class DeviceKernel {
 public:
  DeviceKernel(Backend backend, DeviceKernelMaker maker)
      : backend_(backend), maker_(std::move(maker)) {}

  // The lazy outputs of a checked call. internal if MLX throws.
  std::vector<mx::array> launch(
      const CustomKernelSpec& spec,
      const DeviceKernelSource& source,
      const CustomKernelCall& call,
      mx::Stream stream,
      std::string_view place);

 private:
  mx::fast::CustomKernelFunction find_or_make(
      const CustomKernelSpec& spec,
      const DeviceKernelSource& source,
      const CustomKernelCall& call);

  Backend backend_;
  DeviceKernelMaker maker_;
  std::mutex mutex_;
  std::map<std::string, mx::fast::CustomKernelFunction> launchers_;
};

}  // namespace mlxx
