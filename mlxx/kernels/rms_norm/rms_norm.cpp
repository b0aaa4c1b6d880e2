#include "mlxx/kernels/rms_norm/rms_norm.h"

#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Fewer rows than this are not worth waking the threads for.
constexpr int64_t kManyRows = 16;

using Arrays = std::vector<mx::array>;

// Inputs: x, weight, and what the result's gradient is.
class CpuRmsNormGradient : public CpuPrimitive {
 public:
  CpuRmsNormGradient(float eps, const Selection& selection)
      : CpuPrimitive(
            "CpuRmsNormGradient",
            [eps](const Arrays& inputs) {
              auto norm = [&](const Arrays& x) {
                return Arrays{mx::fast::rms_norm(x[0], inputs[1], eps)};
              };
              return mx::vjp(norm, {inputs[0]}, {inputs[2]}).second;
            }),
        eps_(eps),
        selection_(selection) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const float* x = inputs[0].data<float>();
    const float* weight = inputs[1].data<float>();
    const float* d = inputs[2].data<float>();
    float* in_x = out.data<float>();
    int64_t n = out.shape(-1);
    int64_t rows = static_cast<int64_t>(out.size()) / n;
    dispatch([=, eps = eps_, selection = selection_] {
      const auto& kernels = row_kernels(selection.instruction_set);
      auto part = [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          size_t at = row * n;
          kernels.rms_norm_gradient(x + at, weight, d + at, eps, n, in_x + at);
        }
      };
      for_each_row_range(selection, rows, kManyRows, part);
    });
  }

 private:
  float eps_;
  Selection selection_;
};

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

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs) override {
    Arrays wanted;
    for (int index : argnums) {
      // The weight's is a sum over rows, in MLX's order.
      wanted.push_back(
          index == 0
              ? make_lazy(
                    primals[0].shape(),
                    std::make_shared<CpuRmsNormGradient>(eps_, selection_),
                    {mx::contiguous(primals[0]),
                     mx::contiguous(primals[1]),
                     mx::contiguous(cotangents[0])})
              : CpuPrimitive::vjp(primals, cotangents, {index}, outputs)[0]);
    }
    return wanted;
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
