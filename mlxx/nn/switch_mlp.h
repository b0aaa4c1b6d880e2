#pragma once

#include <functional>

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/activation/activation.h"
#include "mlxx/kernels/select.h"

namespace mlxx::nn {

class RowAdapters;

// Rows that an expert's product is worth sorting for: with as many routed rows
// or more mlx-lm puts them in the order of their experts.
inline constexpr int kSortedRows = 64;

// x [..., M, in] times the transpose of one of `experts` matrices, chosen per
// row; see kernels::expert_matmul for the axes. Reference: mlx-lm 0.32.2,
// models/switch_layers.py, SwitchLinear and QuantizedSwitchLinear. By the
// adapters of the scope, if there is one (nn/row_adapters.h).
class SwitchLinear {
 public:
  SwitchLinear(int experts, int in_features, int out_features, bool bias);

  mx::array
  operator()(const mx::array& x, const mx::array& indices, bool sorted) const;

  // weight, and bias if there is one.
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  const Parameter& weight() const {
    return weight_;
  }
  // Null if there is none.
  const Parameter* bias() const {
    return bias_ ? &*bias_ : nullptr;
  }
  // Whether the product groups rows by expert itself.
  bool groups_rows() const {
    return weight_.packed() != nullptr;
  }

 private:
  mx::array product(const mx::array& x, const mx::array& indices, bool sorted)
      const;

  Parameter weight_;               // [experts, out, in]
  std::optional<Parameter> bias_;  // [experts, out]
};

// gate, up -> what goes into the last product; both of one shape.
using GatedActivation = std::function<mx::array(
    const mx::array& gate,
    const mx::array& up,
    const kernels::Selection& selection)>;

// silu(gate) * up.
mx::array silu_gated(
    const mx::array& gate,
    const mx::array& up,
    const kernels::Selection& selection);

// gelu_tanh(gate) * up, as Gemma has it.
mx::array gelu_tanh_gated(
    const mx::array& gate,
    const mx::array& up,
    const kernels::Selection& selection);

// That of gpt_oss: with gate at most 7 and up within +-7,
// (up + 1) * gate * sigmoid(1.702 * gate). Compiled as one function as in
// mlx-lm.
mx::array clamped_gated(
    const mx::array& gate,
    const mx::array& up,
    const kernels::Selection& selection);

struct SwitchMlpOptions {
  int experts = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  bool bias = false;
  GatedActivation activation = silu_gated;
  // Experts without a gate: down(ungated(up(x))), mlx-lm's SwitchMLP.
  std::optional<kernels::Activation> ungated = {};
  // Names in a checkpoint.
  std::string gate_name = "gate_proj";
  std::string up_name = "up_proj";
  std::string down_name = "down_proj";
};

// down(activation(gate(x), up(x))) of k experts for each token, not yet added
// up. Parameters: under the options' names. Reference: mlx-lm's SwitchGLU,
// with its sorting and the order of its products, which is up, then gate.
class SwitchMlp {
 public:
  explicit SwitchMlp(SwitchMlpOptions options);

  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection) {
    selection_ = selection;
  }
  // x [..., hidden], experts [..., k] of any integer dtype -> [..., k, hidden].
  // No gradient flows into the choice of experts.
  mx::array operator()(const mx::array& x, const mx::array& experts) const;
  // The same added up with weights [..., k], in x's dtype: [..., hidden].
  // Packed stacks do it in one operation where a kernel has the activation.
  mx::array mixture(
      const mx::array& x,
      const mx::array& experts,
      const mx::array& weights) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  mx::array products(const mx::array& x, const mx::array& experts, bool sorted)
      const;
  // Those of the scope, if they change one of the three layers; else null.
  const RowAdapters* changing_adapters() const;

  SwitchMlpOptions options_;
  std::optional<SwitchLinear> gate_proj_;
  SwitchLinear up_proj_;
  SwitchLinear down_proj_;
  kernels::Selection selection_;
};

// The weighted sum of what k experts made of each token: y [..., k, hidden],
// weights [..., k] -> [..., hidden], in the dtype that both have together.
mx::array combine_experts(const mx::array& y, const mx::array& weights);

}  // namespace mlxx::nn
