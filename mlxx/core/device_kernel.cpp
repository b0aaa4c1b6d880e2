#include "mlxx/core/device_kernel.h"

#include <functional>
#include <tuple>

#include "mlxx/base/error.h"
#include "mlxx/core/dtype.h"
#include "mlxx/core/kept_cuda_kernel.h"

namespace mlxx {
namespace {

// Metal passes inputs below this many elements in another address space.
constexpr size_t kSmallInput = 8;

std::string to_text(const TemplateValue& value) {
  if (const int* number = std::get_if<int>(&value)) {
    return fmt::format("int {}", *number);
  }
  if (const bool* flag = std::get_if<bool>(&value)) {
    return fmt::format("bool {}", *flag);
  }
  return std::string(dtype_name(std::get<mx::Dtype>(value)));
}

// Everything of a call that the compiled code depends on.
std::string signature(const CustomKernelCall& call) {
  std::string text;
  for (const auto& input : call.inputs) {
    text += fmt::format(
        "{} {} {};",
        dtype_name(input.dtype()),
        input.ndim(),
        input.size() < kSmallInput);
  }
  for (mx::Dtype dtype : call.output_dtypes) {
    text += fmt::format("{};", dtype_name(dtype));
  }
  for (const auto& [name, value] : call.template_values) {
    text += fmt::format("{}={};", name, to_text(value));
  }
  return text;
}

bool is_negative(const TemplateValue& value) {
  const int* number = std::get_if<int>(&value);
  return number && *number < 0;
}

}  // namespace

mx::fast::CustomKernelFunction DeviceKernel::find_or_make(
    const CustomKernelSpec& spec,
    const DeviceKernelSource& source,
    const CustomKernelCall& call) {
  std::string key = signature(call);
  std::scoped_lock lock(mutex_);
  auto found = launchers_.find(key);
  if (found == launchers_.end()) {
    // MLX writes template values into the function's name, where a minus sign
    // would end it: negative ones become constants of the body.
    std::string body;
    for (const auto& [name, value] : call.template_values) {
      if (is_negative(value)) {
        body +=
            fmt::format("constexpr int {} = {};\n", name, std::get<int>(value));
      }
    }
    body += source.source;
    size_t code = std::hash<std::string>()(
        fmt::format("{}\n{}\n{}", key, source.header, body));
    std::string name = fmt::format("{}_{:016x}", spec.name, code);
    found = launchers_.emplace(key, maker_(backend_, name, body, spec)).first;
  }
  return found->second;
}

std::vector<mx::array> DeviceKernel::launch(
    const CustomKernelSpec& spec,
    const DeviceKernelSource& source,
    const CustomKernelCall& call,
    mx::Stream stream,
    std::string_view place) {
  TemplateValues values;
  for (const auto& named : call.template_values) {
    if (!is_negative(named.second)) {
      values.push_back(named);
    }
  }
  std::string_view step = "making";
  try {
    auto launcher = find_or_make(spec, source, call);
    step = "applying";
    return launcher(
        call.inputs,
        call.output_shapes,
        call.output_dtypes,
        {call.grid.x, call.grid.y, call.grid.z},
        {call.threadgroup.x, call.threadgroup.y, call.threadgroup.z},
        values,
        call.init_value,
        false,
        stream);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(
        ErrorKind::internal,
        place,
        "{} it for {} failed: {}",
        step,
        to_string(backend_),
        error.what());
  }
}

DeviceKernelMaker mlx_kernel_maker() {
  return [](Backend backend,
            const std::string& name,
            const std::string& body,
            const CustomKernelSpec& spec) {
    if (backend == Backend::metal) {
      return mx::fast::metal_kernel(
          name,
          spec.input_names,
          spec.output_names,
          body,
          spec.metal->header,
          spec.ensure_row_contiguous,
          spec.atomic_outputs);
    }
    return make_kept_cuda_kernel(name, body, spec);
  };
}

}  // namespace mlxx
