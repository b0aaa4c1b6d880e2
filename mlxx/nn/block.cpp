#include "mlxx/nn/block.h"

#include <limits>

#include "mlxx/core/checkpoint.h"
#include "mlxx/nn/training_rows.h"

namespace mlxx::nn {
namespace {

std::optional<Norm> norm_named(const std::string& name, const LayerSpec& spec) {
  return name.empty()
      ? std::nullopt
      : std::optional<Norm>(std::in_place, spec.hidden_size, spec.norm);
}

mx::array normed(const std::optional<Norm>& norm, const mx::array& x) {
  return norm ? (*norm)(x) : x;
}

mx::array clipped_sum(const mx::array& x, const mx::array& y) {
  // MLX's finfo(float16).max
  constexpr float kLargestHalf = 65504;
  mx::array bound(kLargestHalf, mx::float32);
  mx::array sum =
      mx::add(mx::astype(x, mx::float32), mx::astype(y, mx::float32));
  return mx::astype(mx::clip(sum, mx::negative(bound), bound), mx::float16);
}

}  // namespace

mx::array add_residual(
    const mx::array& x,
    const mx::array& y,
    float multiplier,
    bool clip) {
  if (multiplier != 1) {
    return mx::add(x, mx::multiply(y, mx::array(multiplier, y.dtype())));
  }
  return clip && x.dtype() == mx::float16 ? clipped_sum(x, y) : mx::add(x, y);
}

TransformerBlock::TransformerBlock(
    const LayerSpec& spec,
    std::unique_ptr<FeedForward> network)
    : spec_(spec),
      attention_(spec),
      network_(std::move(network)),
      before_attention_(norm_named(spec.names.before_attention, spec)),
      after_attention_(norm_named(spec.names.after_attention, spec)),
      before_mlp_(norm_named(spec.names.before_mlp, spec)),
      after_mlp_(norm_named(spec.names.after_mlp, spec)) {
  if (!network_) {
    mlp_.emplace(spec);
  }
}

StateSpec TransformerBlock::state() const {
  return {.kind = StateSpec::Kind::attention, .window = spec_.window};
}

mx::array TransformerBlock::feed_forward(const mx::array& x) const {
  return mlp_ ? (*mlp_)(x) : (*network_)(x);
}

mx::array TransformerBlock::add(const mx::array& x, const mx::array& y) const {
  return add_residual(x, y, spec_.residual_multiplier, spec_.clip_residual);
}

mx::array TransformerBlock::operator()(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::LayerCache& cache) const {
  const TrainingRows* rows = training_rows();
  if (rows && rows->keeps_products && !spec_.parallel) {
    return keeping_products(x, *rows);
  }
  auto& kv = cache::cache_as<cache::KVCache>(cache);
  mx::array n = normed(before_attention_, x);
  mx::array attended = normed(after_attention_, attention_(n, mask, kv));
  if (spec_.parallel) {
    return spec_.parallel_sum == ParallelSum::branches_first
        ? mx::add(mx::add(attended, feed_forward(n)), x)
        : mx::add(mx::add(x, attended), feed_forward(n));
  }
  return add_network(add(x, attended));
}

mx::array TransformerBlock::keeping_products(
    const mx::array& x,
    const TrainingRows& rows) const {
  using Arrays = std::vector<mx::array>;
  auto projections = checkpointed([this](const Arrays& in) {
    return attention_.projections(normed(before_attention_, in[0]));
  })({x});
  mx::array attended =
      attention_.project(attention_.texts_output(projections, rows));
  mx::array h = add(x, normed(after_attention_, attended));
  if (!mlp_) {
    return add_network(h);
  }
  auto wide = checkpointed([this](const Arrays& in) {
    return mlp_->widened(normed(before_mlp_, in[0]));
  })({h});
  auto narrow = checkpointed(
      [this](const Arrays& in) { return Arrays{mlp_->narrowed(in)}; })(wide);
  return add(h, normed(after_mlp_, narrow[0]));
}

std::optional<LayerSpec> TransformerBlock::attention_half() const {
  return spec_.parallel ? std::nullopt : std::optional(spec_);
}

mx::array TransformerBlock::add_network(const mx::array& h) const {
  return add(h, normed(after_mlp_, feed_forward(normed(before_mlp_, h))));
}

void TransformerBlock::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  auto visit_norm = [&](std::optional<Norm>& norm, const std::string& name) {
    if (norm) {
      norm->visit(prefix + "." + name, visitor);
    }
  };
  attention_.visit(prefix + "." + spec_.names.attention, visitor);
  if (mlp_) {
    mlp_->visit(prefix + "." + spec_.names.mlp, visitor);
  } else {
    network_->visit(prefix + "." + spec_.names.mlp, visitor);
  }
  visit_norm(before_attention_, spec_.names.before_attention);
  visit_norm(after_attention_, spec_.names.after_attention);
  visit_norm(before_mlp_, spec_.names.before_mlp);
  visit_norm(after_mlp_, spec_.names.after_mlp);
}

void TransformerBlock::use(const kernels::Selection& selection) {
  attention_.use(selection);
  if (mlp_) {
    mlp_->use(selection);
  } else {
    network_->use(selection);
  }
  for (auto* norm :
       {&before_attention_, &after_attention_, &before_mlp_, &after_mlp_}) {
    if (*norm) {
      (*norm)->use(selection);
    }
  }
}

}  // namespace mlxx::nn
