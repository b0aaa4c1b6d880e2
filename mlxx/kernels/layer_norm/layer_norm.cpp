#include "mlxx/kernels/layer_norm/layer_norm.h"

#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Fewer rows than this are not worth waking the threads for.
constexpr int64_t kManyRows = 16;

// Inputs: x, weight, bias if there is one.
class CpuLayerNorm : public CpuPrimitive {
 public:
  CpuLayerNorm(float eps, const Selection& selection)
      : CpuPrimitive(
            "CpuLayerNorm",
            [eps](const std::vector<mx::array>& inputs) {
              return std::vector{mx::fast::layer_norm(
                  inputs[0],
                  inputs[1],
                  inputs.size() > 2 ? std::optional(inputs[2]) : std::nullopt,
                  eps)};
            }),
        eps_(eps),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const float* x = inputs[0].data<float>();
    const float* weight = inputs[1].data<float>();
    const float* bias = inputs.size() > 2 ? inputs[2].data<float>() : nullptr;
    float* y = out.data<float>();
    int64_t n = out.shape(-1);
    int64_t rows = static_cast<int64_t>(out.size()) / n;
    dispatch([=, eps = eps_, selection = selection_] {
      const auto& kernels = layer_kernels(selection.instruction_set);
      auto part = [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          kernels.layer_norm(x + row * n, weight, bias, eps, n, y + row * n);
        }
      };
      for_each_row_range(selection, rows, kManyRows, part);
    });
  }

 private:
  float eps_;
  Selection selection_;
};

}  // namespace

mx::array layer_norm(
    const mx::array& x,
    const mx::array& weight,
    const std::optional<mx::array>& bias,
    float eps,
    const Selection& selection) {
  auto is_row = [&](const mx::array& a) {
    return a.dtype() == mx::float32 && a.ndim() == 1 &&
        a.shape(0) == x.shape(-1);
  };
  bool covered = selection.has_cpu_kernels() && x.dtype() == mx::float32 &&
      x.ndim() > 0 && x.size() > 0 && is_row(weight) &&
      (!bias || is_row(*bias));
  if (!covered) {
    return mx::fast::layer_norm(x, weight, bias, eps);
  }
  std::vector<mx::array> inputs = {mx::contiguous(x), mx::contiguous(weight)};
  if (bias) {
    inputs.push_back(mx::contiguous(*bias));
  }
  return make_lazy(
      x.shape(),
      std::make_shared<CpuLayerNorm>(eps, selection),
      std::move(inputs));
}

}  // namespace mlxx::kernels
