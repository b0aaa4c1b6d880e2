#include "mlxx/core/custom_kernel.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/core/array_function.h"
#include "mlxx/core/compiled_function.h"
#include "mlxx/core/custom_kernel_checks.h"
#include "mlxx/core/device_kernel.h"
#include "mlxx/core/dtype.h"

namespace mlxx {
namespace {

bool is_traced(const std::vector<mx::array>& inputs) {
  return std::ranges::any_of(inputs, [](const mx::array& x) {
    return x.is_tracer();
  });
}

// A function that puts other inputs into the call. It does not hold those of
// the call: what outlives a trace must not keep the traced arrays.
auto without_inputs(CustomKernelCall call) {
  call.inputs.clear();
  return [call = std::move(call)](const std::vector<mx::array>& inputs) {
    CustomKernelCall whole = call;
    whole.inputs = inputs;
    return whole;
  };
}

}  // namespace

class CustomKernel::State : public std::enable_shared_from_this<State> {
 public:
  State(
      CustomKernelSpec spec,
      KernelPlatform platform,
      DeviceKernelMaker maker);

  std::vector<mx::array> call(const CustomKernelCall& call) const;
  std::vector<mx::array> fallback(const CustomKernelCall& call) const;
  std::optional<std::string> missing(Backend backend) const;

 private:
  using Arrays = std::vector<mx::array>;

  // On a GPU or, if `plain`, by the fallback.
  Arrays run(const CustomKernelCall& call, mx::Stream stream, bool plain) const;
  Arrays run_cpu(const CustomKernelCall& call, mx::Stream stream) const;
  // run() with the spec's gradient instead of MLX's refusal.
  Arrays run_with_gradient(
      const CustomKernelCall& call,
      mx::Stream stream,
      bool plain) const;
  Arrays run_fallback(const CustomKernelCall& call, mx::Stream stream) const;
  Arrays gradient(
      const CustomKernelCall& call,
      const Arrays& cotangents,
      const Arrays& outputs) const;
  Arrays tangents(
      const CustomKernelCall& call,
      const Arrays& given,
      const std::vector<int>& argnums) const;
  // The plain operations as a function of the inputs alone.
  ArrayFunction fallback_of(const CustomKernelCall& call) const;
  void check_same(
      const Arrays& found,
      const std::vector<mx::Shape>& shapes,
      const std::vector<mx::Dtype>& dtypes,
      std::string_view what) const;
  const std::optional<DeviceKernelSource>& source(Backend backend) const {
    return backend == Backend::metal ? spec_.metal : spec_.cuda;
  }

  CustomKernelSpec spec_;
  KernelPlatform platform_;
  std::string place_;  // "custom kernel axpby"
  std::shared_ptr<const CpuKernelCode> cpu_code_;
  // Made lazily by const calls, under their own mutex.
  mutable DeviceKernel metal_;
  mutable DeviceKernel cuda_;
};

CustomKernel::State::State(
    CustomKernelSpec spec,
    KernelPlatform platform,
    DeviceKernelMaker maker)
    : spec_(std::move(spec)),
      platform_(std::move(platform)),
      place_(fmt::format("custom kernel {}", spec_.name)),
      metal_(Backend::metal, maker),
      cuda_(Backend::cuda, maker) {
  check_spec(spec_, place_);
  if (spec_.cpu) {
    cpu_code_ = std::make_shared<CpuKernelCode>(CpuKernelCode{
        place_,
        spec_.input_names,
        spec_.output_names,
        spec_.cpu});
  }
}

std::optional<std::string> CustomKernel::State::missing(Backend backend) const {
  if (backend == Backend::cpu) {
    return spec_.cpu ? std::nullopt : std::optional<std::string>("has no code");
  }
  const auto& code = source(backend);
  if (!code) {
    return "has no code";
  }
  bool is_metal = backend == Backend::metal;
  if (!(is_metal ? platform_.has_metal : platform_.has_cuda)) {
    return fmt::format("this MLX has no {}", is_metal ? "Metal" : "CUDA");
  }
  return code->requirement.unmet(platform_, place_);
}

std::vector<mx::array> CustomKernel::State::call(
    const CustomKernelCall& call) const {
  check_call(spec_, call, place_);
  mx::Stream stream = mx::to_stream(call.stream);
  Backend backend = platform_.backend_of(stream);
  auto reason = missing(backend);
  if (!reason && is_shapeless_tracing()) {
    reason = "has fixed shapes, and a graph for all shapes is being traced";
  }
  if (reason && !spec_.fallback) {
    fail(
        ErrorKind::unsupported,
        place_,
        "on {}: {}, and there is no fallback",
        to_string(backend),
        *reason);
  }
  if (is_empty(call)) {
    Arrays outputs;
    for (size_t i = 0; i < call.output_shapes.size(); ++i) {
      outputs.push_back(
          mx::zeros(call.output_shapes[i], call.output_dtypes[i], stream));
    }
    return outputs;
  }
  if (!reason && backend == Backend::cpu) {
    return run_cpu(call, stream);
  }
  // Plain operations have gradients of their own.
  bool has_gradient = !reason || spec_.gradient;
  return has_gradient && is_traced(call.inputs)
      ? run_with_gradient(call, stream, reason.has_value())
      : run(call, stream, reason.has_value());
}

std::vector<mx::array> CustomKernel::State::run(
    const CustomKernelCall& call,
    mx::Stream stream,
    bool plain) const {
  if (plain) {
    return run_fallback(call, stream);
  }
  Backend backend = platform_.backend_of(stream);
  const DeviceKernelSource& code = *source(backend);
  check_device_call(spec_, code, call, backend, place_);
  DeviceKernel& kernel = backend == Backend::metal ? metal_ : cuda_;
  return kernel.launch(spec_, code, call, stream, place_);
}

std::vector<mx::array> CustomKernel::State::run_cpu(
    const CustomKernelCall& call,
    mx::Stream stream) const {
  Arrays inputs;
  for (const auto& input : call.inputs) {
    inputs.push_back(
        spec_.ensure_row_contiguous ? mx::contiguous(input, false, stream)
                                    : input);
  }
  CpuKernelDerivatives derivatives;
  if (is_traced(inputs)) {
    auto self = shared_from_this();
    auto with = without_inputs(call);
    derivatives.vjp = [self, with](
                          const Arrays& primals,
                          const Arrays& cotangents,
                          const Arrays& outputs) {
      return self->gradient(with(primals), cotangents, outputs);
    };
    derivatives.jvp = [self, with](
                          const Arrays& primals,
                          const Arrays& given,
                          const std::vector<int>& argnums) {
      return self->tangents(with(primals), given, argnums);
    };
  }
  CpuKernelLaunch launch{
      call.grid,
      call.threadgroup,
      call.template_values,
      call.init_value};
  return make_cpu_kernel(
      cpu_code_,
      std::move(launch),
      inputs,
      call.output_shapes,
      call.output_dtypes,
      stream,
      std::move(derivatives));
}

std::vector<mx::array> CustomKernel::State::run_with_gradient(
    const CustomKernelCall& call,
    mx::Stream stream,
    bool plain) const {
  auto self = shared_from_this();
  auto with = without_inputs(call);
  auto function = mx::custom_vjp(
      [self, with, stream, plain](const Arrays& inputs) {
        return self->run(with(inputs), stream, plain);
      },
      [self, with](
          const Arrays& inputs,
          const Arrays& cotangents,
          const Arrays& outputs) {
        return self->gradient(with(inputs), cotangents, outputs);
      });
  return function(call.inputs);
}

std::vector<mx::array> CustomKernel::State::fallback(
    const CustomKernelCall& call) const {
  check_call(spec_, call, place_);
  if (!spec_.fallback) {
    fail(ErrorKind::unsupported, place_, "there is no fallback");
  }
  return run_fallback(call, mx::to_stream(call.stream));
}

std::vector<mx::array> CustomKernel::State::run_fallback(
    const CustomKernelCall& call,
    mx::Stream stream) const {
  // So that operations without a stream of their own run on the call's.
  mx::StreamContext context(stream);
  Arrays outputs = spec_.fallback(call);
  check_same(outputs, call.output_shapes, call.output_dtypes, "the fallback");
  return outputs;
}

ArrayFunction CustomKernel::State::fallback_of(
    const CustomKernelCall& call) const {
  return [self = shared_from_this(),
          with = without_inputs(call)](const Arrays& inputs) {
    CustomKernelCall whole = with(inputs);
    return self->run_fallback(whole, mx::to_stream(whole.stream));
  };
}

std::vector<mx::array> CustomKernel::State::gradient(
    const CustomKernelCall& call,
    const std::vector<mx::array>& cotangents,
    const std::vector<mx::array>& outputs) const {
  if (!spec_.gradient) {
    if (!spec_.fallback) {
      fail(
          ErrorKind::unsupported,
          place_,
          "has neither a gradient nor a fallback to take it from");
    }
    return mx::vjp(fallback_of(call), call.inputs, cotangents).second;
  }
  Arrays found = spec_.gradient(call, cotangents, outputs);
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const auto& input : call.inputs) {
    shapes.push_back(input.shape());
    dtypes.push_back(input.dtype());
  }
  check_same(found, shapes, dtypes, "the gradient");
  return found;
}

std::vector<mx::array> CustomKernel::State::tangents(
    const CustomKernelCall& call,
    const std::vector<mx::array>& given,
    const std::vector<int>& argnums) const {
  if (!spec_.fallback) {
    fail(
        ErrorKind::unsupported,
        place_,
        "has no fallback to take forward derivatives from");
  }
  Arrays all;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    auto at = std::ranges::find(argnums, static_cast<int>(i));
    all.push_back(
        at == argnums.end() ? mx::zeros_like(call.inputs[i])
                            : given[at - argnums.begin()]);
  }
  return mx::jvp(fallback_of(call), call.inputs, all).second;
}

void CustomKernel::State::check_same(
    const std::vector<mx::array>& found,
    const std::vector<mx::Shape>& shapes,
    const std::vector<mx::Dtype>& dtypes,
    std::string_view what) const {
  if (found.size() != shapes.size()) {
    fail(
        ErrorKind::internal,
        place_,
        "{} must give {} arrays, found {}",
        what,
        shapes.size(),
        found.size());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].shape() != shapes[i] || found[i].dtype() != dtypes[i]) {
      fail(
          ErrorKind::internal,
          place_,
          "{} must give ({}) of {} as array {}, found ({}) of {}",
          what,
          fmt::join(shapes[i], ", "),
          dtype_name(dtypes[i]),
          i,
          fmt::join(found[i].shape(), ", "),
          dtype_name(found[i].dtype()));
    }
  }
}

CustomKernel::CustomKernel(CustomKernelSpec spec)
    : CustomKernel(
          std::move(spec),
          loaded_kernel_platform(),
          mlx_kernel_maker()) {}

CustomKernel::CustomKernel(
    CustomKernelSpec spec,
    KernelPlatform platform,
    DeviceKernelMaker maker)
    : state_(std::make_shared<const State>(
          std::move(spec),
          std::move(platform),
          std::move(maker))) {}

const CustomKernel::State& CustomKernel::state() const {
  if (!state_) {
    fail(
        ErrorKind::invalid_request,
        "custom kernel",
        "was used after its contents had been moved away");
  }
  return *state_;
}

std::vector<mx::array> CustomKernel::operator()(
    const CustomKernelCall& call) const {
  return state().call(call);
}

std::vector<mx::array> CustomKernel::fallback(
    const CustomKernelCall& call) const {
  return state().fallback(call);
}

std::optional<std::string> CustomKernel::missing(Backend backend) const {
  return state().missing(backend);
}

}  // namespace mlxx
