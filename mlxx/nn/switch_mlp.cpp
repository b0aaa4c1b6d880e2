#include "mlxx/nn/switch_mlp.h"

#include "mlxx/kernels/expert_matmul/expert_matmul.h"
#include "mlxx/kernels/expert_mlp/expert_mlp.h"
#include "mlxx/kernels/swiglu/swiglu.h"
#include "mlxx/nn/row_adapters.h"

namespace mlxx::nn {
namespace {

std::vector<mx::array> plain_clamped_gated(
    const std::vector<mx::array>& inputs) {
  constexpr float kAlpha = 1.702f;
  constexpr float kLimit = 7.0f;
  auto scalar = [&](float value) {
    return mx::array(value, inputs[0].dtype());
  };
  mx::array gate = mx::minimum(inputs[0], scalar(kLimit));
  mx::array up = mx::clip(inputs[1], scalar(-kLimit), scalar(kLimit));
  return {mx::multiply(
      mx::add(up, scalar(1.0f)),
      mx::multiply(gate, mx::sigmoid(mx::multiply(scalar(kAlpha), gate))))};
}

// What a kernel for the whole mixture calls it; nothing for another function.
std::optional<kernels::ExpertActivation> known_activation(
    const SwitchMlpOptions& options) {
  using kernels::Activation;
  if (options.ungated) {
    return kernels::ExpertActivation{.function = *options.ungated};
  }
  using Function = mx::array (*)(
      const mx::array&,
      const mx::array&,
      const kernels::Selection&);
  const auto* function = options.activation.target<Function>();
  if (!function) {
    return std::nullopt;
  }
  if (*function == silu_gated) {
    return kernels::ExpertActivation{.function = Activation::silu};
  }
  if (*function == gelu_tanh_gated) {
    return kernels::ExpertActivation{.function = Activation::gelu_tanh};
  }
  return *function == clamped_gated
      ? std::optional(kernels::ExpertActivation{.clamped = true})
      : std::nullopt;
}

// Tokens in the order of their experts.
struct SortedTokens {
  mx::array x;        // [routed rows, 1, hidden]
  mx::array experts;  // [routed rows]
  mx::array inverse;  // where each routed row went
};

// x [..., 1, 1, hidden], experts [..., k].
SortedTokens sort_by_expert(const mx::array& x, const mx::array& experts) {
  mx::array flat = mx::flatten(experts);
  mx::array order = mx::argsort(flat);
  mx::array inverse = mx::argsort(order);
  mx::array token =
      mx::floor_divide(order, mx::array(experts.shape(-1), order.dtype()));
  return {
      mx::take(mx::flatten(x, 0, -3), token, 0),
      mx::take(flat, order, 0),
      inverse};
}

}  // namespace

SwitchLinear::SwitchLinear(
    int experts,
    int in_features,
    int out_features,
    bool bias)
    : weight_({experts, out_features, in_features}, Parameter::Kind::matrix) {
  if (bias) {
    bias_.emplace(mx::Shape{experts, out_features}, Parameter::Kind::tensor);
  }
}

mx::array SwitchLinear::operator()(
    const mx::array& x,
    const mx::array& indices,
    bool sorted) const {
  auto plain = [&] { return product(x, indices, sorted); };
  const RowAdapters* adapters = active_adapters();
  if (adapters && adapters->changes(weight_)) {
    auto y = adapters->expert_product(weight_, x, indices, sorted, plain);
    if (y) {
      return *y;
    }
  }
  return plain();
}

mx::array SwitchLinear::product(
    const mx::array& x,
    const mx::array& indices,
    bool sorted) const {
  mx::array y = kernels::expert_matmul(x, weight_, indices, sorted);
  return bias_
      ? mx::add(y, mx::expand_dims(mx::take(bias_->value(), indices, 0), -2))
      : y;
}

void SwitchLinear::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
  if (bias_) {
    visitor(prefix + ".bias", *bias_);
  }
}

mx::array silu_gated(
    const mx::array& gate,
    const mx::array& up,
    const kernels::Selection& selection) {
  return kernels::swiglu(gate, up, selection);
}

mx::array gelu_tanh_gated(
    const mx::array& gate,
    const mx::array& up,
    const kernels::Selection& selection) {
  return kernels::gated_activation(
      gate,
      up,
      kernels::Activation::gelu_tanh,
      selection);
}

mx::array clamped_gated(
    const mx::array& gate,
    const mx::array& up,
    const kernels::Selection&) {
  static const auto compiled =
      mx::compile(plain_clamped_gated, /* shapeless= */ true);
  return compiled({gate, up})[0];
}

SwitchMlp::SwitchMlp(SwitchMlpOptions options)
    : options_(std::move(options)),
      up_proj_(
          options_.experts,
          options_.hidden_size,
          options_.intermediate_size,
          options_.bias),
      down_proj_(
          options_.experts,
          options_.intermediate_size,
          options_.hidden_size,
          options_.bias) {
  if (!options_.ungated) {
    gate_proj_.emplace(
        options_.experts,
        options_.hidden_size,
        options_.intermediate_size,
        options_.bias);
  }
}

mx::array SwitchMlp::products(
    const mx::array& x,
    const mx::array& experts,
    bool sorted) const {
  mx::array up = up_proj_(x, experts, sorted);
  if (!gate_proj_) {
    return down_proj_(
        kernels::activate(up, *options_.ungated),
        experts,
        sorted);
  }
  mx::array gate = (*gate_proj_)(x, experts, sorted);
  return down_proj_(options_.activation(gate, up, selection_), experts, sorted);
}

mx::array SwitchMlp::operator()(const mx::array& x, const mx::array& experts)
    const {
  mx::array rows = mx::expand_dims(x, {-2, -3});
  mx::array chosen = mx::stop_gradient(experts);
  bool groups = (!gate_proj_ || gate_proj_->groups_rows()) &&
      up_proj_.groups_rows() && down_proj_.groups_rows();
  const RowAdapters* adapters = changing_adapters();
  if (groups || (adapters && adapters->rows_apart()) ||
      static_cast<int64_t>(chosen.size()) < kSortedRows) {
    return mx::squeeze(products(rows, chosen, false), -2);
  }
  SortedTokens sorted = sort_by_expert(rows, chosen);
  mx::array y = products(sorted.x, sorted.experts, true);
  y = mx::unflatten(mx::take(y, sorted.inverse, 0), 0, chosen.shape());
  return mx::squeeze(y, -2);
}

const RowAdapters* SwitchMlp::changing_adapters() const {
  const RowAdapters* adapters = active_adapters();
  bool changed = adapters &&
      ((gate_proj_ && adapters->changes(gate_proj_->weight())) ||
       adapters->changes(up_proj_.weight()) ||
       adapters->changes(down_proj_.weight()));
  return changed ? adapters : nullptr;
}

mx::array SwitchMlp::mixture(
    const mx::array& x,
    const mx::array& experts,
    const mx::array& weights) const {
  auto activation = known_activation(options_);
  if (activation && !changing_adapters()) {
    kernels::ExpertMlpWeights stacks{
        gate_proj_ ? &gate_proj_->weight() : nullptr,
        &up_proj_.weight(),
        &down_proj_.weight(),
        gate_proj_ ? gate_proj_->bias() : nullptr,
        up_proj_.bias(),
        down_proj_.bias()};
    if (kernels::expert_mlp_covers(stacks, selection_)) {
      return kernels::expert_mlp(
          x,
          experts,
          weights,
          stacks,
          *activation,
          selection_);
    }
  }
  mx::array y = (*this)(x, experts);
  return mx::astype(combine_experts(y, weights), y.dtype());
}

void SwitchMlp::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  if (gate_proj_) {
    gate_proj_->visit(prefix + "." + options_.gate_name, visitor);
  }
  up_proj_.visit(prefix + "." + options_.up_name, visitor);
  down_proj_.visit(prefix + "." + options_.down_name, visitor);
}

mx::array combine_experts(const mx::array& y, const mx::array& weights) {
  return mx::sum(mx::multiply(y, mx::expand_dims(weights, -1)), -2);
}

}  // namespace mlxx::nn
