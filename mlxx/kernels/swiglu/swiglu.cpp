#include "mlxx/kernels/swiglu/swiglu.h"

#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

constexpr int64_t kManyRows = 8;

std::vector<mx::array> plain_swiglu(const std::vector<mx::array>& inputs) {
  const auto& gate = inputs[0];
  return {mx::multiply(mx::multiply(gate, mx::sigmoid(gate)), inputs[1])};
}

using Arrays = std::vector<mx::array>;

// Inputs: gate, up, and what the result's gradient is; outputs: theirs.
class CpuSwigluGradient : public CpuStreamPrimitive {
 public:
  explicit CpuSwigluGradient(const Selection& selection)
      : CpuStreamPrimitive(
            "CpuSwigluGradient",
            mx::default_stream(mx::Device::cpu)),
        selection_(selection) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    for (auto& out : outputs) {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
    const float* gate = inputs[0].data<float>();
    const float* up = inputs[1].data<float>();
    const float* d = inputs[2].data<float>();
    float* in_gate = outputs[0].data<float>();
    float* in_up = outputs[1].data<float>();
    int64_t n = inputs[0].shape(-1);
    int64_t rows = static_cast<int64_t>(inputs[0].size()) / n;
    dispatch([=, selection = selection_] {
      const auto& kernels = row_kernels(selection.instruction_set);
      auto part = [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          size_t at = row * n;
          kernels.swiglu_gradient(
              gate + at,
              up + at,
              d + at,
              n,
              in_gate + at,
              in_up + at);
        }
      };
      for_each_row_range(selection, rows, kManyRows, part);
    });
  }
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays&) override {
    auto plain = [](const Arrays& x) {
      return mx::vjp(plain_swiglu, {x[0], x[1]}, {x[2]}).second;
    };
    Arrays all = mx::vjp(plain, primals, cotangents).second;
    Arrays wanted;
    for (int index : argnums) {
      wanted.push_back(all[index]);
    }
    return wanted;
  }
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override {
    return {inputs[0].shape(), inputs[0].shape()};
  }

 private:
  Selection selection_;
};

class CpuSwiglu : public CpuPrimitive {
 public:
  explicit CpuSwiglu(const Selection& selection)
      : CpuPrimitive("CpuSwiglu", plain_swiglu), selection_(selection) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    const float* gate = inputs[0].data<float>();
    const float* up = inputs[1].data<float>();
    float* y = out.data<float>();
    int64_t n = out.shape(-1);
    int64_t rows = static_cast<int64_t>(out.size()) / n;
    dispatch([=, selection = selection_] {
      const auto& kernels = row_kernels(selection.instruction_set);
      auto part = [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
          kernels.swiglu(gate + row * n, up + row * n, n, y + row * n);
        }
      };
      for_each_row_range(selection, rows, kManyRows, part);
    });
  }

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays&) override {
    const mx::Shape& shape = primals[0].shape();
    auto both = mx::array::make_arrays(
        {shape, shape},
        {mx::float32, mx::float32},
        std::make_shared<CpuSwigluGradient>(selection_),
        {mx::contiguous(primals[0]),
         mx::contiguous(primals[1]),
         mx::contiguous(cotangents[0])});
    Arrays wanted;
    for (int index : argnums) {
      wanted.push_back(both[index]);
    }
    return wanted;
  }

 private:
  Selection selection_;
};

}  // namespace

mx::array
swiglu(const mx::array& gate, const mx::array& up, const Selection& selection) {
  bool covered = selection.has_cpu_kernels() && gate.dtype() == mx::float32 &&
      up.dtype() == mx::float32 && gate.shape() == up.shape() &&
      gate.ndim() > 0 && gate.size() > 0;
  if (!covered) {
    static const auto compiled =
        mx::compile(plain_swiglu, /* shapeless= */ true);
    return compiled({gate, up})[0];
  }
  return make_lazy(
      gate.shape(),
      std::make_shared<CpuSwiglu>(selection),
      {mx::contiguous(gate), mx::contiguous(up)});
}

}  // namespace mlxx::kernels
