#include "mlxx/models/gemma4_layer.h"

#include <cmath>

#include "mlxx/nn/router.h"

namespace mlxx::models {

Gemma4Experts::Gemma4Experts(const Gemma4LayerSpec& spec)
    : per_token_(spec.experts_per_token),
      eps_(spec.block.norm.eps),
      root_(static_cast<float>(std::pow(spec.block.hidden_size, -0.5))),
      scale_({spec.block.hidden_size}, Parameter::Kind::tensor),
      per_expert_scale_({spec.experts}, Parameter::Kind::tensor),
      projection_(spec.block.hidden_size, spec.experts, false),
      experts_({
          .experts = spec.experts,
          .hidden_size = spec.block.hidden_size,
          .intermediate_size = spec.expert_size,
          .activation = nn::gelu_tanh_gated,
      }) {}

mx::array Gemma4Experts::operator()(const mx::array& h, const mx::array& x)
    const {
  const mx::array& scale = scale_.value();
  mx::array normed = mx::fast::rms_norm(
      h,
      mx::multiply(scale, mx::array(root_, scale.dtype())),
      eps_);
  nn::Routing routing = nn::top_k_then_softmax(
      projection_(normed),
      per_token_,
      nn::TopK::last,
      nn::ChosenSoftmax::plain);
  mx::array weights = mx::multiply(
      routing.weights,
      mx::take(per_expert_scale_.value(), routing.experts));
  return experts_.mixture(x, routing.experts, weights);
}

void Gemma4Experts::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  visitor(prefix + ".router.scale", scale_);
  visitor(prefix + ".router.per_expert_scale", per_expert_scale_);
  projection_.visit(prefix + ".router.proj", visitor);
  experts_.visit(prefix + ".experts.switch_glu", visitor);
}

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
  if (spec.experts > 0) {
    experts_.emplace(spec);
    post_mlp_norm_1_.emplace(block.hidden_size, block.norm);
    pre_mlp_norm_2_.emplace(block.hidden_size, block.norm);
    post_mlp_norm_2_.emplace(block.hidden_size, block.norm);
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

mx::array Gemma4Layer::feed_forward(const mx::array& h) const {
  mx::array y = mlp_(pre_mlp_norm_(h));
  if (experts_) {
    mx::array routed = (*experts_)(h, (*pre_mlp_norm_2_)(h));
    y = mx::add((*post_mlp_norm_1_)(y), (*post_mlp_norm_2_)(routed));
  }
  return post_mlp_norm_(y);
}

mx::array Gemma4Layer::operator()(
    const mx::array& h,
    const kernels::AttentionMask& mask,
    cache::KVCache* cache,
    std::optional<Gemma4Keys>& keys,
    const std::optional<mx::array>& input) const {
  mx::array attended = attend(input_norm_(h), mask, cache, keys);
  mx::array x = mx::add(h, post_attention_norm_(attended));
  x = mx::add(x, feed_forward(x));
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
  if (experts_) {
    experts_->visit(prefix, visitor);
    post_mlp_norm_1_->visit(prefix + ".post_feedforward_layernorm_1", visitor);
    pre_mlp_norm_2_->visit(prefix + ".pre_feedforward_layernorm_2", visitor);
    post_mlp_norm_2_->visit(prefix + ".post_feedforward_layernorm_2", visitor);
  }
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
  if (experts_) {
    experts_->use(selection);
  }
  for (auto* norm :
       {&k_norm_,
        &post_mlp_norm_1_,
        &pre_mlp_norm_2_,
        &post_mlp_norm_2_,
        &post_input_norm_}) {
    if (*norm) {
      (*norm)->use(selection);
    }
  }
}

}  // namespace mlxx::models
