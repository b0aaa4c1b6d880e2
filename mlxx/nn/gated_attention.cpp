#include "mlxx/nn/gated_attention.h"

namespace mlxx::nn {

GatedAttention::GatedAttention(const LayerSpec& spec)
    : spec_(spec),
      q_(spec.hidden_size, 2 * spec.heads * spec.head_size, spec.qkv_bias),
      k_(spec.hidden_size, spec.kv_heads * spec.head_size, spec.qkv_bias),
      v_(spec.hidden_size, spec.kv_heads * spec.head_size, spec.qkv_bias),
      o_(spec.heads * spec.head_size, spec.hidden_size, spec.output_bias),
      q_norm_(spec.head_size, spec.norm),
      k_norm_(spec.head_size, spec.norm) {}

mx::array GatedAttention::operator()(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::LayerCache& cache) const {
  auto& kv = cache::cache_as<cache::KVCache>(cache);
  int B = x.shape(0);
  int L = x.shape(1);
  auto parts = mx::split(mx::reshape(q_(x), {B, L, spec_.heads, -1}), 2, -1);
  mx::array gate = mx::reshape(parts[1], {B, L, -1});
  auto by_head = [](const mx::array& a) {
    return mx::transpose(a, {0, 2, 1, 3});
  };
  mx::array queries = by_head(q_norm_(parts[0]));
  mx::array keys = by_head(
      k_norm_(mx::reshape(k_(x), {B, L, spec_.kv_heads, spec_.head_size})));
  mx::array values = split_heads(v_(x), spec_.kv_heads);
  kernels::Position first = kv.position();
  queries = (*spec_.rope)(queries, first, selection_);
  keys = (*spec_.rope)(keys, first, selection_);
  mx::array output = join_heads(kernels::attention(
      queries,
      kv.append(keys, values),
      {.scale = spec_.attention_scale, .mask = mask},
      selection_));
  return o_(mx::multiply(output, mx::sigmoid(gate)));
}

void GatedAttention::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  q_.visit(prefix + "." + spec_.names.q, visitor);
  k_.visit(prefix + "." + spec_.names.k, visitor);
  v_.visit(prefix + "." + spec_.names.v, visitor);
  o_.visit(prefix + "." + spec_.names.o, visitor);
  q_norm_.visit(prefix + "." + spec_.names.q_norm, visitor);
  k_norm_.visit(prefix + "." + spec_.names.k_norm, visitor);
}

void GatedAttention::use(const kernels::Selection& selection) {
  selection_ = selection;
  q_norm_.use(selection);
  k_norm_.use(selection);
}

}  // namespace mlxx::nn
