#include "mlxx/kernels/linear_cross_entropy/packed_scores.h"

#include <algorithm>

#include "mlxx/core/cpu_stream_primitive.h"
#include "mlxx/kernels/cpu_variants.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {
namespace {

// Rows whose logits are there at one time: enough for products near their best
// speed.
constexpr int64_t kRows = 256;

std::shared_ptr<const PanelMatrix> panels_of(const Parameter& weight) {
  auto packed = std::dynamic_pointer_cast<const PackedPanels>(weight.packed());
  return packed ? packed->matrix() : nullptr;
}

// Inputs: rows [N, E] float32, targets [N] int32.
class PackedScores : public CpuStreamPrimitive {
 public:
  PackedScores(
      std::shared_ptr<const PanelMatrix> matrix,
      const LogitForm& form,
      const Selection& selection)
      : CpuStreamPrimitive("PackedScores", mx::default_stream(mx::Device::cpu)),
        matrix_(std::move(matrix)),
        factor_(form.factor),
        softcap_(form.softcap),
        selection_(selection) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    dispatch(
        [rows = inputs[0].data<float>(),
         targets = inputs[1].data<int32_t>(),
         count = int64_t{inputs[0].shape(0)},
         scores = outputs[0].data<float>(),
         logits = outputs[1].data<float>(),
         gradient = outputs.size() > 2 ? outputs[2].data<float>() : nullptr,
         matrix = matrix_,
         factor = factor_,
         softcap = softcap_,
         selection = selection_] {
          const auto& kernels = row_kernels(selection.instruction_set);
          int64_t in = matrix->in();
          int64_t out = matrix->out();
          int64_t most = std::min(count, kRows);
          for (int64_t at = 0; at < count; at += most) {
            int64_t n = std::min(most, count - at);
            matrix->multiply(rows + at * in, n, logits);
            auto score = [&](size_t begin, size_t end) {
              for (size_t i = begin; i < end; ++i) {
                scores[at + i] = kernels.score_target(
                    {logits + i * out, out, targets[at + i], factor, softcap});
              }
            };
            for_each_row_range(selection, n, 2, score);
            if (gradient) {
              matrix->multiply_transposed(logits, n, gradient + at * in);
            }
          }
        });
  }

 private:
  std::shared_ptr<const PanelMatrix> matrix_;
  float factor_;
  float softcap_;
  Selection selection_;
};

}  // namespace

bool packed_scores_covers(
    const mx::array& rows,
    const LogitForm& form,
    const Selection& selection) {
  return selection.has_cpu_kernels() && rows.dtype() == mx::float32 &&
      rows.size() > 0 && !form.trains_weight && !form.bias &&
      panels_of(*form.weight);
}

std::vector<mx::array> packed_scores(
    const mx::array& rows,
    const mx::array& targets,
    const LogitForm& form,
    const Selection& selection) {
  // The logits are an output that nobody reads: so they are MLX's memory, and
  // a plan of it knows of them.
  int pieces = std::min<int>(rows.shape(0), kRows);
  std::vector<mx::Shape> shapes{
      {rows.shape(0)},
      {pieces, form.weight->shape()[0]}};
  if (form.differentiable) {
    shapes.push_back(rows.shape());
  }
  auto all = mx::array::make_arrays(
      shapes,
      std::vector<mx::Dtype>(shapes.size(), mx::float32),
      std::make_shared<PackedScores>(panels_of(*form.weight), form, selection),
      {mx::contiguous(rows), mx::contiguous(targets)});
  all.erase(all.begin() + 1);
  return all;
}

}  // namespace mlxx::kernels
