#include "mlxx/nn/activation.h"

namespace mlxx::nn {
namespace {

std::vector<mx::array> swiglu_body(const std::vector<mx::array>& inputs) {
  const auto& gate = inputs[0];
  return {mx::multiply(mx::multiply(gate, mx::sigmoid(gate)), inputs[1])};
}

}  // namespace

mx::array swiglu(const mx::array& gate, const mx::array& up) {
  static const auto compiled = mx::compile(swiglu_body, /* shapeless= */ true);
  return compiled({gate, up})[0];
}

}  // namespace mlxx::nn
