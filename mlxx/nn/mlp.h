#pragma once

#include "mlxx/nn/layer_spec.h"
#include "mlxx/nn/linear.h"

namespace mlxx::nn {

// down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate. Parameters:
// as the spec names them.
class Mlp {
 public:
  explicit Mlp(const LayerSpec& spec);
  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection) {
    selection_ = selection;
  }
  mx::array operator()(const mx::array& x) const {
    return narrowed(widened(x));
  }
  // Its two halves: gate(x) and up(x), or up(x) alone; and what follows.
  std::vector<mx::array> widened(const mx::array& x) const;
  mx::array narrowed(const std::vector<mx::array>& wide) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  LayerNames names_;
  kernels::Activation activation_;
  std::optional<Linear> gate_;
  Linear up_;
  Linear down_;
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
