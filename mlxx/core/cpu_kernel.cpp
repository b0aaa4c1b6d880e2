#include "mlxx/core/cpu_kernel.h"

#include <algorithm>

#include <mlx/dtype_utils.h>

#include "mlxx/core/cpu_stream_primitive.h"
#include "mlxx/core/dtype.h"

namespace mlxx {
namespace {

// The template value of that name and type.
template <typename T>
T find_value(
    const CpuKernelArguments& arguments,
    std::string_view name,
    std::string_view kind) {
  for (const auto& [known, value] : arguments.template_values) {
    if (known == name) {
      if (const T* found = std::get_if<T>(&value)) {
        return *found;
      }
      fail(
          ErrorKind::invalid_request,
          arguments.kernel,
          "the template value '{}' is no {}",
          name,
          kind);
    }
  }
  fail(
      ErrorKind::invalid_request,
      arguments.kernel,
      "has no template value '{}'",
      name);
}

void fill(const CpuKernelOutput& output, float value) {
  mx::dispatch_all_types(output.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    std::fill_n(
        static_cast<T*>(output.data),
        output.size,
        static_cast<T>(value));
  });
}

class CpuKernelPrimitive : public CpuStreamPrimitive {
 public:
  CpuKernelPrimitive(
      std::shared_ptr<const CpuKernelCode> code,
      CpuKernelLaunch launch,
      std::vector<mx::Shape> input_shapes,
      std::vector<mx::Shape> output_shapes,
      std::vector<mx::Dtype> output_dtypes,
      mx::Stream stream,
      CpuKernelDerivatives derivatives)
      : CpuStreamPrimitive(code->name, stream),
        code_(std::move(code)),
        launch_(std::move(launch)),
        input_shapes_(std::move(input_shapes)),
        output_shapes_(std::move(output_shapes)),
        output_dtypes_(std::move(output_dtypes)),
        derivatives_(std::move(derivatives)) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override;

  std::vector<mx::array> vjp(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& cotangents,
      const std::vector<int>& argnums,
      const std::vector<mx::array>& outputs) override {
    auto all = derivatives_.vjp(primals, cotangents, outputs);
    std::vector<mx::array> wanted;
    for (int index : argnums) {
      wanted.push_back(all.at(index));
    }
    return wanted;
  }

  std::vector<mx::array> jvp(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& tangents,
      const std::vector<int>& argnums) override {
    return derivatives_.jvp(primals, tangents, argnums);
  }

  std::pair<std::vector<mx::array>, std::vector<int>> vmap(
      const std::vector<mx::array>&,
      const std::vector<int>&) override {
    fail(ErrorKind::unsupported, name(), "a custom kernel has no vmap");
  }

  // So that compile() may merge two equal calls with the same inputs.
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& that = static_cast<const CpuKernelPrimitive&>(other);
    return code_ == that.code_ && launch_ == that.launch_ &&
        output_shapes_ == that.output_shapes_ &&
        std::ranges::equal(output_dtypes_, that.output_dtypes_);
  }

  // Asked by shapeless compile() with the inputs of a later call. The grid and
  // the shapes were fixed by the traced one.
  std::vector<mx::Shape> output_shapes(
      const std::vector<mx::array>& inputs) override {
    bool same = std::ranges::equal(
        inputs,
        input_shapes_,
        {},
        [](const mx::array& a) -> const auto& { return a.shape(); });
    if (!same) {
      fail(
          ErrorKind::unsupported,
          name(),
          "was traced for other shapes: a custom kernel cannot be compiled "
          "without shapes");
    }
    return output_shapes_;
  }

 private:
  std::shared_ptr<const CpuKernelCode> code_;
  CpuKernelLaunch launch_;
  std::vector<mx::Shape> input_shapes_;
  std::vector<mx::Shape> output_shapes_;
  std::vector<mx::Dtype> output_dtypes_;
  CpuKernelDerivatives derivatives_;
};

void CpuKernelPrimitive::eval_cpu(
    const std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs) {
  CpuKernelArguments arguments;
  arguments.kernel = code_->name;
  arguments.grid = launch_.grid;
  arguments.threadgroup = launch_.threadgroup;
  arguments.template_values = launch_.template_values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const mx::array& x = inputs[i];
    arguments.inputs.push_back(
        {code_->name,
         code_->input_names[i],
         x.data<char>(),
         x.shape(),
         x.strides(),
         x.dtype(),
         x.size()});
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    mx::array& y = outputs[i];
    y.set_data(mx::allocator::malloc(y.nbytes()));
    arguments.outputs.push_back(
        {code_->name,
         code_->output_names[i],
         y.data<char>(),
         y.shape(),
         y.dtype(),
         y.size()});
  }
  dispatch([code = code_,
            init = launch_.init_value,
            arguments = std::move(arguments)] {
    if (init) {
      for (const auto& output : arguments.outputs) {
        fill(output, *init);
      }
    }
    code->function(arguments);
  });
}

}  // namespace

void fail_dtype(
    std::string_view kernel,
    std::string_view name,
    mx::Dtype found,
    mx::Dtype wanted) {
  fail(
      ErrorKind::invalid_request,
      kernel,
      "'{}' is an array of {}, read as {}",
      name,
      dtype_name(found),
      dtype_name(wanted));
}

int CpuKernelArguments::integer(std::string_view name) const {
  return find_value<int>(*this, name, "int");
}

bool CpuKernelArguments::flag(std::string_view name) const {
  return find_value<bool>(*this, name, "bool");
}

mx::Dtype CpuKernelArguments::dtype(std::string_view name) const {
  return find_value<mx::Dtype>(*this, name, "dtype");
}

std::vector<mx::array> make_cpu_kernel(
    std::shared_ptr<const CpuKernelCode> code,
    CpuKernelLaunch launch,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::Shape>& output_shapes,
    const std::vector<mx::Dtype>& output_dtypes,
    mx::Stream stream,
    CpuKernelDerivatives derivatives) {
  std::vector<mx::Shape> input_shapes;
  for (const auto& input : inputs) {
    input_shapes.push_back(input.shape());
  }
  auto primitive = std::make_shared<CpuKernelPrimitive>(
      std::move(code),
      std::move(launch),
      std::move(input_shapes),
      output_shapes,
      output_dtypes,
      stream,
      std::move(derivatives));
  return mx::array::make_arrays(
      output_shapes,
      output_dtypes,
      primitive,
      inputs);
}

}  // namespace mlxx
