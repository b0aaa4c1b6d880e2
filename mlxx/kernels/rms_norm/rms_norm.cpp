#include "mlxx/kernels/rms_norm/rms_norm.h"

#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Fewer rows than this are not worth waking the threads for.
constexpr int64_t kManyRows = 16;

class CpuRmsNorm : public CpuPrimitive {
 public:
  CpuRmsNorm(float eps, const Selection& selection)
      : CpuPrimitive(
            "CpuRmsNorm",
            [eps](const std::vector<mx::array>& inputs) {
              return std::vector{mx::fast::rms_norm(inputs[0], inputs[1], eps)};
            }),
        eps_(eps),
        selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const float* x = inputs[0].data<float>();
    const float* weight = inputs[1].data<float>();
    float* y = out.data<float>();
    int64_t n = out.shape(-1);
    int64_t rows = static_cast<int64_t>(out.size()) / n;
    dispatch([=, eps = eps_, selection = selection_] {
      const auto& kernels = row_kernels(selection.instruction_set);
      auto part = [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          kernels.rms_norm(x + row * n, weight, eps, n, y + row * n);
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

mx::array rms_norm(
    const mx::array& x,
    const mx::array& weight,
    float eps,
    const Selection& selection) {
  bool covered = selection.has_cpu_kernels() && x.dtype() == mx::float32 &&
      weight.dtype() == mx::float32 && x.ndim() > 0 && x.size() > 0 &&
      weight.ndim() == 1 && weight.shape(0) == x.shape(-1);
  if (!covered) {
    return mx::fast::rms_norm(x, weight, eps);
  }
  return make_lazy(
      x.shape(),
      std::make_shared<CpuRmsNorm>(eps, selection),
      {mx::contiguous(x), mx::contiguous(weight)});
}

}  // namespace mlxx::kernels
