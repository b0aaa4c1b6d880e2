#pragma once

#include "mlxx/nn/attention.h"
#include "mlxx/nn/mlp.h"
#include "mlxx/nn/norm.h"

namespace mlxx::nn {

// h = x + attention(norm(x)); h + mlp(norm(h)). Parameters: self_attn, mlp,
// input_layernorm, post_attention_layernorm.
class TransformerBlock {
 public:
  explicit TransformerBlock(const LayerSpec& spec);

  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection);

  const LayerSpec& spec() const {
    return spec_;
  }
  // x [B, L, E] -> [B, L, E]
  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::KVCache& cache) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  LayerSpec spec_;
  Attention self_attn_;
  GatedMlp mlp_;
  RMSNorm input_layernorm_;
  RMSNorm post_attention_layernorm_;
};

}  // namespace mlxx::nn
