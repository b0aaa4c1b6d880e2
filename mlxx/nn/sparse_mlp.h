#pragma once

#include <functional>
#include <memory>
#include <string>

#include "mlxx/nn/block.h"
#include "mlxx/nn/router.h"
#include "mlxx/nn/switch_mlp.h"

namespace mlxx::nn {

// What a router decides with.
struct RouterInput {
  mx::array logits;                     // [..., experts]
  std::optional<mx::array> correction;  // [experts]
  mx::Dtype dtype;                      // of the tokens
};

// Beside the chosen experts each token may go through a network of its own.
enum class SharedExpert {
  none,
  added,  // experts + shared(x)
  gated,  // experts + sigmoid(shared_gate(x)) * shared(x)
};

// A mixture of experts, as plain data.
struct SparseMlpSpec {
  SwitchMlpOptions experts;
  std::function<Routing(const RouterInput&)> route;
  bool router_bias = false;
  bool float32_router = false;  // tokens meet the router as float32
  // Tokens as rows [B * L, E], not [B, L, E]: where the reference does it.
  bool flatten = false;
  SharedExpert shared = SharedExpert::none;
  int shared_size = 0;  // intermediate size of the shared expert

  // Names of the parts in a checkpoint.
  std::string router_name = "gate";
  std::string correction_name;  // empty: there is none
  std::string experts_name = "switch_mlp";
  std::string shared_name = "shared_experts";
  std::string shared_gate_name = "shared_expert_gate";
};

// The weighted sum of what the chosen experts make of a token.
class SparseMlp : public FeedForward {
 public:
  explicit SparseMlp(SparseMlpSpec spec);

  mx::array operator()(const mx::array& x) const override;
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override;
  void use(const kernels::Selection& selection) override;

 private:
  mx::array mixture(const mx::array& x) const;

  SparseMlpSpec spec_;
  Linear router_;
  std::optional<Parameter> correction_;  // [experts]
  SwitchMlp experts_;
  std::optional<Mlp> shared_;
  std::optional<Linear> shared_gate_;
};

}  // namespace mlxx::nn
