#include "mlxx/nn/block.h"

namespace mlxx::nn {

TransformerBlock::TransformerBlock(const LayerSpec& spec)
    : spec_(spec),
      self_attn_(spec),
      mlp_(spec.hidden_size, spec.intermediate_size, spec.mlp_bias),
      input_layernorm_(spec.hidden_size, spec.norm_eps),
      post_attention_layernorm_(spec.hidden_size, spec.norm_eps) {}

void TransformerBlock::use(const kernels::Selection& selection) {
  self_attn_.use(selection);
  mlp_.use(selection);
  input_layernorm_.use(selection);
  post_attention_layernorm_.use(selection);
}

mx::array TransformerBlock::operator()(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::KVCache& cache) const {
  mx::array h = mx::add(x, self_attn_(input_layernorm_(x), mask, cache));
  return mx::add(h, mlp_(post_attention_layernorm_(h)));
}

void TransformerBlock::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  self_attn_.visit(prefix + ".self_attn", visitor);
  mlp_.visit(prefix + ".mlp", visitor);
  input_layernorm_.visit(prefix + ".input_layernorm", visitor);
  post_attention_layernorm_.visit(
      prefix + ".post_attention_layernorm",
      visitor);
}

}  // namespace mlxx::nn
