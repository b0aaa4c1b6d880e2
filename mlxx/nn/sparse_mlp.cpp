#include "mlxx/nn/sparse_mlp.h"

namespace mlxx::nn {
namespace {

LayerSpec shared_layer(const SparseMlpSpec& spec) {
  LayerSpec layer;
  layer.hidden_size = spec.experts.hidden_size;
  layer.intermediate_size = spec.shared_size;
  return layer;
}

}  // namespace

SparseMlp::SparseMlp(SparseMlpSpec spec)
    : spec_(std::move(spec)),
      router_(
          spec_.experts.hidden_size,
          spec_.experts.experts,
          spec_.router_bias),
      experts_(spec_.experts) {
  if (!spec_.correction_name.empty()) {
    correction_.emplace(
        mx::Shape{spec_.experts.experts},
        Parameter::Kind::tensor);
  }
  if (spec_.shared != SharedExpert::none) {
    shared_.emplace(shared_layer(spec_));
  }
  if (spec_.shared == SharedExpert::gated) {
    shared_gate_.emplace(spec_.experts.hidden_size, 1, false);
  }
}

mx::array SparseMlp::mixture(const mx::array& x) const {
  RouterInput input{
      router_(spec_.float32_router ? mx::astype(x, mx::float32) : x),
      std::nullopt,
      x.dtype()};
  if (correction_) {
    input.correction = correction_->value();
  }
  Routing routing = spec_.route(input);
  return experts_.mixture(x, routing.experts, routing.weights);
}

mx::array SparseMlp::operator()(const mx::array& x) const {
  mx::array y = spec_.flatten
      ? mx::reshape(mixture(mx::flatten(x, 0, -2)), x.shape())
      : mixture(x);
  if (!shared_) {
    return y;
  }
  mx::array shared = (*shared_)(x);
  if (shared_gate_) {
    shared = mx::multiply(mx::sigmoid((*shared_gate_)(x)), shared);
  }
  return mx::add(y, shared);
}

void SparseMlp::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  router_.visit(prefix + "." + spec_.router_name, visitor);
  if (correction_) {
    visitor(prefix + "." + spec_.correction_name, *correction_);
  }
  experts_.visit(prefix + "." + spec_.experts_name, visitor);
  if (shared_) {
    shared_->visit(prefix + "." + spec_.shared_name, visitor);
  }
  if (shared_gate_) {
    shared_gate_->visit(prefix + "." + spec_.shared_gate_name, visitor);
  }
}

void SparseMlp::use(const kernels::Selection& selection) {
  experts_.use(selection);
  if (shared_) {
    shared_->use(selection);
  }
}

}  // namespace mlxx::nn
