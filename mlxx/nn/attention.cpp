#include "mlxx/nn/attention.h"

namespace mlxx::nn {
namespace {

// [B, L, heads * D] -> [B, heads, L, D]
mx::array split_heads(const mx::array& x, int heads, int head_size) {
  return mx::transpose(
      mx::reshape(x, {x.shape(0), x.shape(1), heads, head_size}),
      {0, 2, 1, 3});
}

}  // namespace

Attention::Attention(const LayerSpec& spec)
    : heads_(spec.heads),
      kv_heads_(spec.kv_heads),
      head_size_(spec.head_size),
      scale_(spec.attention_scale),
      rope_(spec.rope),
      q_proj_(spec.hidden_size, spec.heads * spec.head_size, spec.qkv_bias),
      k_proj_(spec.hidden_size, spec.kv_heads * spec.head_size, spec.qkv_bias),
      v_proj_(spec.hidden_size, spec.kv_heads * spec.head_size, spec.qkv_bias),
      o_proj_(spec.heads * spec.head_size, spec.hidden_size, spec.output_bias) {
}

mx::array Attention::operator()(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::KVCache& cache) const {
  mx::array queries = split_heads(q_proj_(x), heads_, head_size_);
  mx::array keys = split_heads(k_proj_(x), kv_heads_, head_size_);
  mx::array values = split_heads(v_proj_(x), kv_heads_, head_size_);
  kernels::Position first = cache.position();
  queries = (*rope_)(queries, first, selection_);
  keys = (*rope_)(keys, first, selection_);
  mx::array output = kernels::attention(
      queries,
      cache.append(keys, values),
      scale_,
      mask,
      selection_);
  output = mx::reshape(
      mx::transpose(output, {0, 2, 1, 3}),
      {x.shape(0), x.shape(1), heads_ * head_size_});
  return o_proj_(output);
}

void Attention::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  q_proj_.visit(prefix + ".q_proj", visitor);
  k_proj_.visit(prefix + ".k_proj", visitor);
  v_proj_.visit(prefix + ".v_proj", visitor);
  o_proj_.visit(prefix + ".o_proj", visitor);
}

}  // namespace mlxx::nn
