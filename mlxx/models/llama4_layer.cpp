#include "mlxx/models/llama4_layer.h"

#include "mlxx/nn/router.h"
#include "mlxx/nn/switch_mlp.h"

namespace mlxx::models {
namespace {

mx::array unit_normed(const mx::array& x, float eps) {
  return mx::fast::rms_norm(x, std::nullopt, eps);
}

// [L, 1], or [B, 1, L, 1] where rows are at different positions.
mx::array temperatures(
    const Llama4LayerSpec& spec,
    const kernels::Position& first,
    int length) {
  auto number = [](float value) { return mx::array(value, mx::float32); };
  mx::array positions =
      mx::add(first.of_tokens(length), mx::array(1, mx::int32));
  mx::array laps = mx::floor(mx::divide(positions, number(spec.floor_scale)));
  mx::array scales = mx::add(
      mx::multiply(
          mx::log(mx::add(laps, number(1))),
          number(spec.temperature_scale)),
      number(1));
  scales = mx::expand_dims(scales, -1);
  return scales.ndim() == 3 ? mx::expand_dims(scales, 1) : scales;
}

class Llama4Experts : public nn::FeedForward {
 public:
  Llama4Experts(int hidden_size, int intermediate_size, int experts)
      : router_(hidden_size, experts, false),
        experts_(
            {.experts = experts,
             .hidden_size = hidden_size,
             .intermediate_size = intermediate_size}),
        shared_(shared_spec(hidden_size, intermediate_size)) {}

  mx::array operator()(const mx::array& x) const override {
    mx::array logits = router_(x);
    mx::array chosen = nn::top_experts(logits, 1, nn::TopK::first_of_negated);
    mx::array scores = mx::take_along_axis(logits, chosen, -1);
    scores =
        mx::astype(mx::sigmoid(mx::astype(scores, mx::float32)), x.dtype());
    mx::array routed =
        mx::squeeze(experts_(mx::multiply(x, scores), chosen), 2);
    return mx::add(routed, shared_(x));
  }

  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override {
    router_.visit(prefix + ".router", visitor);
    experts_.visit(prefix + ".experts", visitor);
    shared_.visit(prefix + ".shared_expert", visitor);
  }

  void use(const kernels::Selection& selection) override {
    experts_.use(selection);
    shared_.use(selection);
  }

 private:
  static nn::LayerSpec shared_spec(int hidden_size, int intermediate_size) {
    nn::LayerSpec spec;
    spec.hidden_size = hidden_size;
    spec.intermediate_size = intermediate_size;
    return spec;
  }

  nn::Linear router_;
  nn::SwitchMlp experts_;
  nn::Mlp shared_;
};

}  // namespace

Llama4Layer::Llama4Layer(
    const Llama4LayerSpec& spec,
    std::unique_ptr<nn::FeedForward> network)
    : spec_(spec),
      q_(spec.block.hidden_size,
         spec.block.heads * spec.block.head_size,
         spec.block.qkv_bias),
      k_(spec.block.hidden_size,
         spec.block.kv_heads * spec.block.head_size,
         spec.block.qkv_bias),
      v_(spec.block.hidden_size,
         spec.block.kv_heads * spec.block.head_size,
         spec.block.qkv_bias),
      o_(spec.block.heads * spec.block.head_size,
         spec.block.hidden_size,
         spec.block.output_bias),
      network_(std::move(network)),
      before_attention_(spec.block.hidden_size, spec.block.norm),
      before_mlp_(spec.block.hidden_size, spec.block.norm) {
  if (!network_) {
    mlp_.emplace(spec.block);
  }
}

mx::array Llama4Layer::attend(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::KVCache& cache) const {
  using UnitNorm = Llama4LayerSpec::UnitNorm;
  const nn::LayerSpec& block = spec_.block;
  mx::array queries = nn::split_heads(q_(x), block.heads);
  mx::array keys = nn::split_heads(k_(x), block.kv_heads);
  mx::array values = nn::split_heads(v_(x), block.kv_heads);
  kernels::Position first = cache.position();
  if (spec_.unit_norm == UnitNorm::before_rope) {
    queries = unit_normed(queries, spec_.unit_norm_eps);
    keys = unit_normed(keys, spec_.unit_norm_eps);
  }
  if (block.rope) {
    queries = (*block.rope)(queries, first, selection_);
    keys = (*block.rope)(keys, first, selection_);
  }
  if (spec_.unit_norm == UnitNorm::after_rope) {
    queries = unit_normed(queries, spec_.unit_norm_eps);
    keys = unit_normed(keys, spec_.unit_norm_eps);
  }
  if (spec_.temperature) {
    queries = mx::astype(
        mx::multiply(queries, temperatures(spec_, first, x.shape(1))),
        queries.dtype());
  }
  mx::array output = kernels::attention(
      queries,
      cache.append(keys, values),
      {.scale = block.attention_scale, .mask = mask},
      selection_);
  return o_(nn::join_heads(output));
}

mx::array Llama4Layer::operator()(
    const mx::array& h,
    const kernels::AttentionMask& mask,
    cache::LayerCache& cache) const {
  auto& kv = cache::cache_as<cache::KVCache>(cache);
  mx::array x = mx::add(h, attend(before_attention_(h), mask, kv));
  mx::array n = before_mlp_(x);
  return mx::add(x, mlp_ ? (*mlp_)(n) : (*network_)(n));
}

nn::StateSpec Llama4Layer::state() const {
  using Kind = nn::StateSpec::Kind;
  return {
      .kind = spec_.chunk > 0 ? Kind::chunked : Kind::attention,
      .window = spec_.chunk};
}

void Llama4Layer::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  q_.visit(prefix + ".self_attn.q_proj", visitor);
  k_.visit(prefix + ".self_attn.k_proj", visitor);
  v_.visit(prefix + ".self_attn.v_proj", visitor);
  o_.visit(prefix + ".self_attn.o_proj", visitor);
  if (mlp_) {
    mlp_->visit(prefix + ".feed_forward", visitor);
  } else {
    network_->visit(prefix + ".feed_forward", visitor);
  }
  before_attention_.visit(prefix + ".input_layernorm", visitor);
  before_mlp_.visit(prefix + ".post_attention_layernorm", visitor);
}

void Llama4Layer::use(const kernels::Selection& selection) {
  selection_ = selection;
  if (mlp_) {
    mlp_->use(selection);
  } else {
    network_->use(selection);
  }
  before_attention_.use(selection);
  before_mlp_.use(selection);
}

std::unique_ptr<nn::FeedForward>
make_llama4_experts(int hidden_size, int intermediate_size, int experts) {
  return std::make_unique<Llama4Experts>(
      hidden_size,
      intermediate_size,
      experts);
}

}  // namespace mlxx::models
