#include "mlxx/kernels/activation/activation_cpu.h"

#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {

ActivationKernel activation_kernel(
    const LayerKernels& kernels,
    Activation activation) {
  switch (activation) {
    case Activation::silu:
      return kernels.silu;
    case Activation::gelu:
      return kernels.gelu;
    case Activation::gelu_tanh:
      return kernels.gelu_tanh;
    case Activation::relu_squared:
      return kernels.relu_squared;
  }
  return kernels.silu;
}

namespace {

// Fewer rows than this are not worth waking the threads for.
constexpr int64_t kManyRows = 8;

// Inputs: x, the factor if there is one.
class CpuActivation : public CpuPrimitive {
 public:
  CpuActivation(Activation activation, const Selection& selection)
      : CpuPrimitive(
            "CpuActivation",
            [activation](const std::vector<mx::array>& inputs) {
              mx::array y = activate(inputs[0], activation);
              return std::vector{
                  inputs.size() > 1 ? mx::multiply(y, inputs[1]) : y};
            }),
        activation_(activation),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const float* x = inputs[0].data<float>();
    const float* factor = inputs.size() > 1 ? inputs[1].data<float>() : nullptr;
    float* y = out.data<float>();
    int64_t n = out.shape(-1);
    int64_t rows = static_cast<int64_t>(out.size()) / n;
    auto kernel = activation_kernel(
        layer_kernels(selection_.instruction_set),
        activation_);
    dispatch([=, selection = selection_] {
      auto part = [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          size_t at = row * static_cast<size_t>(n);
          kernel(x + at, factor ? factor + at : nullptr, n, y + at);
        }
      };
      for_each_row_range(selection, rows, kManyRows, part);
    });
  }

 private:
  Activation activation_;
  Selection selection_;
};

}  // namespace

bool activation_cpu_covers(
    const mx::array& x,
    const std::optional<mx::array>& factor,
    const Selection& selection) {
  return selection.has_cpu_kernels() && x.dtype() == mx::float32 &&
      x.ndim() > 0 && x.size() > 0 &&
      (!factor ||
       (factor->dtype() == mx::float32 && factor->shape() == x.shape()));
}

mx::array activation_cpu(
    const mx::array& x,
    const std::optional<mx::array>& factor,
    Activation activation,
    const Selection& selection) {
  std::vector<mx::array> inputs = {mx::contiguous(x)};
  if (factor) {
    inputs.push_back(mx::contiguous(*factor));
  }
  return make_lazy(
      x.shape(),
      std::make_shared<CpuActivation>(activation, selection),
      std::move(inputs));
}

}  // namespace mlxx::kernels
