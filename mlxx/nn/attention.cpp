#include "mlxx/nn/attention.h"

#include "mlxx/nn/training_rows.h"

namespace mlxx::nn {
namespace {

// As floating-point steps follow each other in the reference: [L, 1], or
// [B, 1, L, 1] where rows are at different positions.
mx::array query_scales(
    const PositionScale& scale,
    const kernels::Position& first,
    int length,
    mx::Dtype dtype) {
  auto number = [](float value) { return mx::array(value, mx::float32); };
  mx::array laps = mx::floor(mx::divide(
      first.of_tokens(length),
      mx::array(scale.original_length, mx::int32)));
  mx::array growth = mx::log(mx::add(number(1), laps));
  mx::array factor = mx::expand_dims(
      mx::add(number(1), mx::multiply(number(scale.beta), growth)),
      -1);
  return mx::astype(
      factor.ndim() == 3 ? mx::expand_dims(factor, 1) : factor,
      dtype);
}

}  // namespace

mx::array split_heads(const mx::array& x, int heads) {
  int size = x.shape(2) / heads;
  return mx::transpose(
      mx::reshape(x, {x.shape(0), x.shape(1), heads, size}),
      {0, 2, 1, 3});
}

mx::array join_heads(const mx::array& x) {
  return mx::reshape(
      mx::transpose(x, {0, 2, 1, 3}),
      {x.shape(0), x.shape(2), x.shape(1) * x.shape(3)});
}

Attention::Attention(const LayerSpec& spec)
    : spec_(spec),
      q_(spec.hidden_size, spec.heads * spec.head_size, spec.qkv_bias),
      k_(spec.hidden_size, spec.kv_heads * spec.head_size, spec.qkv_bias),
      v_(spec.hidden_size, spec.kv_heads * spec.head_size, spec.qkv_bias),
      o_(spec.heads * spec.head_size, spec.hidden_size, spec.output_bias) {
  if (spec.qk_norm == QkNorm::per_head) {
    q_norm_.emplace(spec.head_size, spec.norm);
    k_norm_.emplace(spec.head_size, spec.norm);
  } else if (spec.qk_norm == QkNorm::whole_width) {
    q_norm_.emplace(spec.heads * spec.head_size, spec.norm);
    k_norm_.emplace(spec.kv_heads * spec.head_size, spec.norm);
  } else if (spec.qk_norm == QkNorm::layer_per_head) {
    auto tensor = Parameter::Kind::tensor;
    q_layernorm_.emplace(mx::Shape{spec.heads, spec.head_size}, tensor);
    k_layernorm_.emplace(mx::Shape{spec.kv_heads, spec.head_size}, tensor);
  }
  if (spec.sinks) {
    sinks_.emplace(mx::Shape{spec.heads}, Parameter::Kind::tensor);
  }
}

void Attention::use(const kernels::Selection& selection) {
  selection_ = selection;
  for (auto* norm : {&q_norm_, &k_norm_}) {
    if (*norm) {
      (*norm)->use(selection);
    }
  }
}

mx::array Attention::normed_heads(
    const mx::array& x,
    int heads,
    const std::optional<Norm>& norm,
    const std::optional<Parameter>& weights) const {
  switch (spec_.qk_norm) {
    case QkNorm::none:
      break;
    case QkNorm::per_head:
      return (*norm)(split_heads(x, heads));
    case QkNorm::whole_width:
      return split_heads((*norm)(x), heads);
    case QkNorm::layer_per_head: {
      mx::array split =
          mx::reshape(x, {x.shape(0), x.shape(1), heads, spec_.head_size});
      mx::array normed = mx::fast::layer_norm(
          split,
          std::nullopt,
          std::nullopt,
          spec_.norm.eps);
      return mx::transpose(
          mx::multiply(weights->value(), normed),
          {0, 2, 1, 3});
    }
  }
  return split_heads(x, heads);
}

mx::array Attention::attend_texts(
    mx::array queries,
    mx::array keys,
    const mx::array& values,
    const TrainingRows& rows) const {
  if (spec_.rope) {
    auto rotate = [&](const mx::array& x, int first) {
      return (*spec_.rope)(x, first, selection_);
    };
    queries = rows.by_segments(queries, rotate);
    keys = rows.by_segments(keys, rotate);
  }
  mx::Dtype dtype = queries.dtype();
  if (spec_.query_scale.beta != 0) {
    queries = rows.by_segments(queries, [&](const mx::array& x, int first) {
      return mx::multiply(
          x,
          query_scales(spec_.query_scale, first, x.shape(2), dtype));
    });
  }
  if (spec_.score_dtype == ScoreDtype::float32) {
    queries = mx::astype(queries, mx::float32);
    keys = mx::astype(keys, mx::float32);
  } else if (
      spec_.score_dtype == ScoreDtype::float32_for_half &&
      dtype == mx::float16) {
    queries = mx::astype(queries, mx::float32);
  }
  kernels::TrainingAttention options{
      .scale = spec_.attention_scale,
      .window = spec_.window,
      .softcap = spec_.softcap,
      .segments = rows.segments};
  if (sinks_) {
    options.sinks = sinks_->value();
  }
  return mx::astype(
      kernels::training_attention(queries, keys, values, options, selection_),
      dtype);
}

std::vector<mx::array> Attention::projections(const mx::array& x) const {
  mx::array queries = q_(x);
  mx::array keys = k_(x);
  return {queries, keys, v_(x)};
}

mx::array Attention::texts_output(
    const std::vector<mx::array>& projections,
    const TrainingRows& rows) const {
  return join_heads(attend_texts(
      normed_heads(projections[0], spec_.heads, q_norm_, q_layernorm_),
      normed_heads(projections[1], spec_.kv_heads, k_norm_, k_layernorm_),
      split_heads(projections[2], spec_.kv_heads),
      rows));
}

mx::array Attention::heads_output(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::KVCache& cache) const {
  if (const TrainingRows* rows = training_rows()) {
    return texts_output(projections(x), *rows);
  }
  mx::array queries = normed_heads(q_(x), spec_.heads, q_norm_, q_layernorm_);
  mx::array keys = normed_heads(k_(x), spec_.kv_heads, k_norm_, k_layernorm_);
  mx::array values = split_heads(v_(x), spec_.kv_heads);
  kernels::Position first = cache.position();
  if (spec_.rope) {
    queries = (*spec_.rope)(queries, first, selection_);
    keys = (*spec_.rope)(keys, first, selection_);
  }
  if (spec_.query_scale.beta != 0) {
    queries = mx::multiply(
        queries,
        query_scales(spec_.query_scale, first, x.shape(1), x.dtype()));
  }
  cache::KVView view = cache.append(keys, values);
  mx::Dtype dtype = queries.dtype();
  if (spec_.score_dtype == ScoreDtype::float32) {
    queries = mx::astype(queries, mx::float32);
    if (auto* dense = std::get_if<cache::DenseView>(&view)) {
      dense->keys = mx::astype(dense->keys, mx::float32);
    } else if (auto* rows = std::get_if<kernels::RowsView>(&view)) {
      for (auto& row : rows->rows) {
        row.tokens.keys = mx::astype(row.tokens.keys, mx::float32);
      }
    }
  } else if (
      spec_.score_dtype == ScoreDtype::float32_for_half &&
      dtype == mx::float16) {
    queries = mx::astype(queries, mx::float32);
  }
  kernels::AttentionOptions options{
      .scale = spec_.attention_scale,
      .mask = mask,
      .softcap = spec_.softcap};
  if (sinks_) {
    options.sinks = sinks_->value();
  }
  mx::array output = kernels::attention(queries, view, options, selection_);
  return join_heads(mx::astype(output, dtype));
}

mx::array Attention::operator()(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::KVCache& cache) const {
  return o_(heads_output(x, mask, cache));
}

void Attention::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  q_.visit(prefix + "." + spec_.names.q, visitor);
  k_.visit(prefix + "." + spec_.names.k, visitor);
  v_.visit(prefix + "." + spec_.names.v, visitor);
  o_.visit(prefix + "." + spec_.names.o, visitor);
  if (q_norm_) {
    q_norm_->visit(prefix + "." + spec_.names.q_norm, visitor);
    k_norm_->visit(prefix + "." + spec_.names.k_norm, visitor);
  }
  if (q_layernorm_) {
    visitor(prefix + ".q_layernorm.weight", *q_layernorm_);
    visitor(prefix + ".k_layernorm.weight", *k_layernorm_);
  }
  if (sinks_) {
    visitor(prefix + ".sinks", *sinks_);
  }
}

}  // namespace mlxx::nn
