#include "mlxx/models/gemma4_layer.h"

namespace mlxx::models {

Gemma4Layer::Gemma4Layer(const Gemma4LayerSpec& spec)
    : spec_(spec),
      q_(spec.block.hidden_size,
         spec.block.heads * spec.block.head_size,
         false),
      o_(spec.block.heads * spec.block.head_size,
         spec.block.hidden_size,
         false),
      q_norm_(spec.block.head_size, spec.block.norm),
      mlp_(spec.block),
      input_norm_(spec.block.hidden_size, spec.block.norm),
      post_attention_norm_(spec.block.hidden_size, spec.block.norm),
      pre_mlp_norm_(spec.block.hidden_size, spec.block.norm),
      post_mlp_norm_(spec.block.hidden_size, spec.block.norm),
      scalar_({1}, Parameter::Kind::tensor) {
  const nn::LayerSpec& block = spec.block;
  if (spec.has_keys) {
    int width = block.kv_heads * block.head_size;
    k_.emplace(block.hidden_size, width, false);
    if (!spec.values_are_keys) {
      v_.emplace(block.hidden_size, width, false);
    }
    k_norm_.emplace(block.head_size, block.norm);
  }
  if (spec.per_layer_input > 0) {
    input_gate_.emplace(block.hidden_size, spec.per_layer_input, false);
    input_projection_.emplace(spec.per_layer_input, block.hidden_size, false);
    post_input_norm_.emplace(block.hidden_size, block.norm);
  }
}

mx::array Gemma4Layer::attend(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::KVCache* cache,
    std::optional<Gemma4Keys>& keys) const {
  const nn::LayerSpec& block = spec_.block;
  mx::array queries = q_norm_(nn::split_heads(q_(x), block.heads));
  if (spec_.has_keys) {
    mx::array k = nn::split_heads((*k_)(x), block.kv_heads);
    mx::array v = v_ ? nn::split_heads((*v_)(x), block.kv_heads) : k;
    // The reference rotates by an array, for which MLX has another kernel.
    kernels::Position first = cache->position();
    if (!first.array) {
      first.array = mx::array(first.number, mx::int32);
    }
    k = (*block.rope)((*k_norm_)(k), first, selection_);
    v = mx::fast::rms_norm(v, std::nullopt, block.norm.eps);
    keys = Gemma4Keys{cache->append(k, v), first};
  }
  queries = (*block.rope)(queries, keys->first, selection_);
  mx::array output = kernels::attention(
      queries,
      keys->view,
      {.scale = 1, .mask = mask},
      selection_);
  return o_(nn::join_heads(output));
}

mx::array Gemma4Layer::operator()(
    const mx::array& h,
    const kernels::AttentionMask& mask,
    cache::KVCache* cache,
    std::optional<Gemma4Keys>& keys,
    const std::optional<mx::array>& input) const {
  mx::array attended = attend(input_norm_(h), mask, cache, keys);
  mx::array x = mx::add(h, post_attention_norm_(attended));
  x = mx::add(x, post_mlp_norm_(mlp_(pre_mlp_norm_(x))));
  if (input_gate_) {
    mx::array gate = kernels::gated_activation(
        (*input_gate_)(x),
        *input,
        kernels::Activation::gelu_tanh,
        selection_);
    x = mx::add(x, (*post_input_norm_)((*input_projection_)(gate)));
  }
  return mx::multiply(x, scalar_.value());
}

void Gemma4Layer::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  q_.visit(prefix + ".self_attn.q_proj", visitor);
  q_norm_.visit(prefix + ".self_attn.q_norm", visitor);
  if (k_) {
    k_->visit(prefix + ".self_attn.k_proj", visitor);
    k_norm_->visit(prefix + ".self_attn.k_norm", visitor);
  }
  if (v_) {
    v_->visit(prefix + ".self_attn.v_proj", visitor);
  }
  o_.visit(prefix + ".self_attn.o_proj", visitor);
  mlp_.visit(prefix + ".mlp", visitor);
  input_norm_.visit(prefix + ".input_layernorm", visitor);
  post_attention_norm_.visit(prefix + ".post_attention_layernorm", visitor);
  pre_mlp_norm_.visit(prefix + ".pre_feedforward_layernorm", visitor);
  post_mlp_norm_.visit(prefix + ".post_feedforward_layernorm", visitor);
  if (input_gate_) {
    input_gate_->visit(prefix + ".per_layer_input_gate", visitor);
    input_projection_->visit(prefix + ".per_layer_projection", visitor);
    post_input_norm_->visit(prefix + ".post_per_layer_input_norm", visitor);
  }
  visitor(prefix + ".layer_scalar", scalar_);
}

void Gemma4Layer::use(const kernels::Selection& selection) {
  selection_ = selection;
  mlp_.use(selection);
  for (auto* norm :
       {&q_norm_,
        &input_norm_,
        &post_attention_norm_,
        &pre_mlp_norm_,
        &post_mlp_norm_}) {
    norm->use(selection);
  }
  for (auto* norm : {&k_norm_, &post_input_norm_}) {
    if (*norm) {
      (*norm)->use(selection);
    }
  }
}

}  // namespace mlxx::models
