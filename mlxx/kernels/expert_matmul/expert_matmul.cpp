#include "mlxx/kernels/expert_matmul/expert_matmul.h"

#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/core/dtype.h"
#include "mlxx/kernels/cpu_primitive.h"
#include "mlxx/kernels/expert_matmul/device_experts.h"
#include "mlxx/kernels/expert_matmul/expert_panels.h"
#include "mlxx/kernels/expert_matmul/sorted_rows.h"

namespace mlxx::kernels {
namespace {

mx::Shape leading_axes(const mx::Shape& shape) {
  return {shape.begin(), shape.end() - 2};
}

// For each element of `to` in row-major order the element of `from` that
// broadcasts to it.
std::vector<int64_t> broadcast_sources(
    const mx::Shape& from,
    const mx::Shape& to) {
  size_t missing = to.size() - from.size();
  std::vector<int64_t> sources = {0};
  int64_t stride = 1;
  std::vector<int64_t> strides(to.size());
  for (size_t axis = to.size(); axis-- > missing;) {
    int size = from[axis - missing];
    strides[axis] = size == 1 ? 0 : stride;
    stride *= size;
  }
  for (size_t axis = 0; axis < to.size(); ++axis) {
    std::vector<int64_t> next;
    next.reserve(sources.size() * to[axis]);
    for (int64_t source : sources) {
      for (int i = 0; i < to[axis]; ++i) {
        next.push_back(source + i * strides[axis]);
      }
    }
    sources = std::move(next);
  }
  return sources;
}

// y [R, M, out] = x [X, M, in] with experts indices [R]; x and indices
// row-contiguous, R what their leading axes broadcast to.
class ExpertMatmul : public CpuPrimitive {
 public:
  explicit ExpertMatmul(std::shared_ptr<const PackedExperts> experts)
      : CpuPrimitive(
            "ExpertMatmul",
            [experts](const std::vector<mx::array>& inputs) {
              return std::vector{mx::gather_mm(
                  inputs[0],
                  mx::swapaxes(experts->dequantize(), -1, -2),
                  std::nullopt,
                  mx::stop_gradient(inputs[1]))};
            }),
        panels_(experts->panels()) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    out.set_data(mx::allocator::malloc(out.nbytes()));
    auto batches = broadcast_sources(
        leading_axes(inputs[0].shape()),
        leading_axes(out.shape()));
    int64_t per_batch = out.shape(-2);
    std::vector<int64_t> sources;
    sources.reserve(batches.size() * per_batch);
    for (int64_t batch : batches) {
      for (int64_t row = 0; row < per_batch; ++row) {
        sources.push_back(batch * per_batch + row);
      }
    }
    const float* x = inputs[0].data<float>();
    const int32_t* indices = inputs[1].data<int32_t>();
    float* y = out.data<float>();
    dispatch([=, panels = panels_, sources = std::move(sources)] {
      std::vector<int32_t> experts(sources.size());
      for (size_t i = 0; i < experts.size(); ++i) {
        experts[i] = indices[i / per_batch];
      }
      panels->multiply(x, sources, experts, y);
    });
  }

  std::vector<mx::Shape> output_shapes(
      const std::vector<mx::array>& inputs) override {
    mx::Shape shape = inputs[1].shape();
    shape.push_back(inputs[0].shape(-2));
    shape.push_back(panels_->out());
    return {shape};
  }

 private:
  std::shared_ptr<const ExpertPanels> panels_;
};

void check_axes(
    const mx::array& x,
    const Parameter& experts,
    const mx::array& indices) {
  const auto& shape = experts.shape();
  if (shape.size() != 3 || x.ndim() < 2 || x.shape(-1) != shape[2] ||
      !mx::issubdtype(indices.dtype(), mx::integer)) {
    fail(
        ErrorKind::internal,
        "expert_matmul",
        "x [{}] and {} {} indices do not fit experts [{}]",
        fmt::join(x.shape(), ", "),
        indices.size(),
        dtype_name(indices.dtype()),
        fmt::join(shape, ", "));
  }
}

mx::array dense_product(
    const mx::array& x,
    const mx::array& experts,
    const mx::array& indices,
    bool sorted) {
  auto product = [&](const mx::array& rows, const mx::array& matrices) {
    return mx::gather_mm(
        sorted ? sorted_rows(rows) : rows,
        mx::swapaxes(matrices, -1, -2),
        std::nullopt,
        indices,
        sorted);
  };
  // MLX's CPU backend has this for float32 only, so that nothing of mlx-lm's
  // could be equal here.
  bool widen = backend() == Backend::cpu && experts.dtype() != mx::float32;
  return widen ? mx::astype(
                     product(
                         mx::astype(x, mx::float32),
                         mx::astype(experts, mx::float32)),
                     x.dtype())
               : product(x, experts);
}

mx::array packed_product(
    const mx::array& x,
    std::shared_ptr<const PackedExperts> experts,
    const mx::array& indices) {
  mx::Shape batch =
      mx::broadcast_shapes(leading_axes(x.shape()), indices.shape());
  mx::array rows = mx::contiguous(mx::astype(x, mx::float32));
  mx::array routes =
      mx::contiguous(mx::broadcast_to(mx::astype(indices, mx::int32), batch));
  mx::Shape shape = batch;
  shape.push_back(x.shape(-2));
  shape.push_back(experts->panels()->out());
  mx::array y = make_lazy(
      shape,
      std::make_shared<ExpertMatmul>(std::move(experts)),
      {rows, routes});
  return mx::astype(y, x.dtype());
}

WeightArrays expert_of(const WeightArrays& all, int index) {
  auto part = [&](const mx::array& a) { return mx::take(a, index, 0); };
  auto optional_part = [&](const std::optional<mx::array>& a) {
    return a ? std::optional(part(*a)) : std::nullopt;
  };
  return {
      part(all.weight),
      optional_part(all.scales),
      optional_part(all.biases)};
}

}  // namespace

mx::array expert_matmul(
    const mx::array& x,
    const Parameter& experts,
    const mx::array& indices,
    bool sorted) {
  check_axes(x, experts, indices);
  if (experts.packed()) {
    auto packed =
        std::dynamic_pointer_cast<const PackedExperts>(experts.packed());
    if (!packed) {
      fail(
          ErrorKind::internal,
          "expert_matmul",
          "the resident form is no stack of experts");
    }
    return packed_product(x, std::move(packed), indices);
  }
  const auto& arrays = experts.arrays();
  if (!experts.quantization()) {
    return dense_product(x, arrays.weight, indices, sorted);
  }
  const auto& quantization = *experts.quantization();
  // A product says that plain operations were not asked for.
  if (experts.product() && backend() == Backend::cuda &&
      covers_device_experts(x, arrays, quantization, indices)) {
    return device_expert_matmul(x, arrays, quantization, indices, sorted);
  }
  // MLX takes a global scale for each expert on GPUs only.
  bool scales_after = arrays.global_scale && backend() == Backend::cpu;
  mx::array y = mx::gather_qmm(
      x,
      arrays.weight,
      *arrays.scales,
      arrays.biases,
      std::nullopt,
      indices,
      true,
      quantization.group_size,
      quantization.bits,
      quantization.mode,
      scales_after ? std::nullopt : arrays.global_scale,
      sorted);
  if (!scales_after) {
    return y;
  }
  constexpr float kLargest = 448 * 6;  // of e4m3 and of e2m1
  mx::array factors = mx::multiply(
      mx::take(*arrays.global_scale, indices),
      mx::array(1 / kLargest));
  factors = mx::expand_dims(factors, {-2, -1});
  return mx::astype(
      mx::multiply(mx::astype(y, mx::float32), factors),
      y.dtype());
}

std::shared_ptr<const PackedWeights> pack_experts(
    const WeightArrays& arrays,
    const std::optional<QuantizationSpec>& quantization,
    const Selection& selection) {
  if (selection.fallback || backend() != Backend::cpu || arrays.global_scale ||
      arrays.weight.ndim() != 3 || arrays.weight.shape(0) == 0) {
    return nullptr;
  }
  std::vector<std::shared_ptr<const PanelMatrix>> experts;
  for (int e = 0; e < arrays.weight.shape(0); ++e) {
    WeightArrays expert = expert_of(arrays, e);
    bool can_pack = quantization ? PanelMatrix::can_pack(expert, *quantization)
                                 : PanelMatrix::can_pack(expert.weight);
    if (!can_pack) {
      return nullptr;
    }
    experts.push_back(
        quantization
            ? std::make_shared<const PanelMatrix>(
                  expert,
                  *quantization,
                  selection)
            : std::make_shared<const PanelMatrix>(expert.weight, selection));
  }
  return std::make_shared<PackedExperts>(
      std::make_shared<const ExpertPanels>(std::move(experts), selection));
}

}  // namespace mlxx::kernels
