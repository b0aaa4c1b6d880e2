#pragma once

#include <map>
#include <string>
#include <vector>

#include "mlxx/kernels/decode_step/decoder_weights.h"
#include "mlxx/nn/block.h"

namespace mlxx::models {

// The parameters of a module by their names within it, taken one by one for a
// kernel that computes the whole module.
class ModuleWeights {
 public:
  template <typename Module>
  explicit ModuleWeights(Module& module) {
    module.visit("", [&](const std::string& name, Parameter& parameter) {
      all_.emplace(name.substr(1), &parameter);
    });
  }

  // float32; empty if there is none. One is added in the weights' own dtype, as
  // the plain operations round it.
  std::vector<float> vector(const std::string& name, bool plus_one = false);
  // Null, and a problem, if it is not packed.
  std::shared_ptr<const kernels::PanelMatrix> matrix(const std::string& name);
  // Weight and bias under that name.
  kernels::PanelLinear linear(const std::string& name);
  // `prefix`: of its weight and bias, "input_layernorm.".
  kernels::NormWeights norm(
      const std::string& prefix,
      const nn::NormSpec& spec);
  // Leaves out what is under none of these names: it is computed elsewhere.
  void keep(const std::vector<std::string>& names);

  // Empty, or what the kernel would leave out.
  std::string problem() const;

 private:
  const Parameter* take(const std::string& name);

  std::map<std::string, const Parameter*> all_;
  std::string unpacked_;
};

// Appends a whole block with its MLP, or a layer's attention_half(), to the
// layers. Empty, or why the kernel can't compute it.
std::string add_layer(
    nn::TransformerBlock& block,
    kernels::DecoderWeights& weights);
std::string add_attention_half(
    nn::DecoderLayer& layer,
    kernels::DecoderWeights& weights);

}  // namespace mlxx::models
