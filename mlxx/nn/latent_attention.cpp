#include "mlxx/nn/latent_attention.h"

#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/expert_matmul/expert_matmul.h"
#include "mlxx/kernels/quantized_matmul/device_matmul.h"
#include "mlxx/nn/attention.h"

namespace mlxx::nn {
namespace {

// Whatever the config says, as in the reference.
constexpr NormSpec kLatentNorm = {.eps = 1e-6f};

// Which of the S keys each of the L new tokens sees; nothing if all.
std::optional<mx::array>
visible_keys(const kernels::AttentionMask& mask, int length, int total) {
  if (mask.mode != "causal") {
    return mask.array;
  }
  return mx::greater_equal(
      mx::expand_dims(mx::arange(total - length, total), 1),
      mx::expand_dims(mx::arange(total), 0));
}

[[noreturn]] void fail_view() {
  fail(
      ErrorKind::internal,
      "latent attention",
      "the cache does not hold latents in one array");
}

// Keys are also the values.
kernels::KVView keys_twice(kernels::KVView view) {
  if (auto* dense = std::get_if<kernels::DenseView>(&view)) {
    dense->values = dense->keys;
  } else if (auto* rows = std::get_if<kernels::RowsView>(&view)) {
    for (auto& row : rows->rows) {
      row.tokens.values = row.tokens.keys;
    }
  } else {
    fail_view();
  }
  return view;
}

mx::array row_of(const mx::array& a, int row) {
  return mx::slice(
      a,
      {row, 0, 0, 0},
      {row + 1, a.shape(1), a.shape(2), a.shape(3)});
}

}  // namespace

HeadMatrices::HeadMatrices(int heads, int out, int in)
    : weight_({heads, out, in}, Parameter::Kind::matrix) {}

mx::array HeadMatrices::product(const mx::array& x, bool transpose) const {
  const auto& arrays = weight_.arrays();
  if (weight_.quantization()) {
    const auto& quantization = *weight_.quantization();
    if (!transpose && backend() == Backend::cuda) {
      // MLX has no such product there for every size.
      return mx::matmul(
          x,
          kernels::device_dequantize(arrays, quantization, x.dtype()));
    }
    return mx::quantized_matmul(
        x,
        arrays.weight,
        *arrays.scales,
        arrays.biases,
        transpose,
        quantization.group_size,
        quantization.bits,
        quantization.mode);
  }
  return mx::matmul(
      x,
      transpose ? mx::swapaxes(arrays.weight, -1, -2) : arrays.weight);
}

mx::array HeadMatrices::operator()(const mx::array& x) const {
  if (!is_packed()) {
    return product(x, true);
  }
  return kernels::expert_matmul(
      x,
      weight_,
      mx::arange(weight_.shape()[0]),
      /* sorted= */ true);
}

mx::array HeadMatrices::transposed(const mx::array& x) const {
  return product(x, false);
}

void HeadMatrices::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
}

LatentAttention::LatentAttention(const LatentAttentionSpec& spec)
    : spec_(spec),
      kv_a_(spec.hidden_size, spec.latent_size + spec.rope_size, spec.bias),
      kv_a_norm_(spec.latent_size, kLatentNorm),
      embed_q_(spec.heads, spec.latent_size, spec.plain_size),
      unembed_out_(spec.heads, spec.value_size, spec.latent_size),
      o_(spec.heads * spec.value_size, spec.hidden_size, spec.bias) {
  int width = spec.heads * (spec.plain_size + spec.rope_size);
  if (spec.query_rank == 0) {
    q_.emplace(spec.hidden_size, width, false);
  } else {
    q_a_.emplace(spec.hidden_size, spec.query_rank, spec.bias);
    q_a_norm_.emplace(spec.query_rank, kLatentNorm);
    q_b_.emplace(spec.query_rank, width, false);
  }
}

void LatentAttention::use(const kernels::Selection& selection) {
  selection_ = selection;
  kv_a_norm_.use(selection);
  if (q_a_norm_) {
    q_a_norm_->use(selection);
  }
}

LatentAttention::Parts LatentAttention::project(
    const mx::array& x,
    const kernels::Position& first) const {
  mx::array queries = q_ ? (*q_)(x) : (*q_b_)((*q_a_norm_)((*q_a_)(x)));
  auto q = mx::split(
      split_heads(queries, spec_.heads),
      mx::Shape{spec_.plain_size},
      -1);
  auto kv = mx::split(kv_a_(x), mx::Shape{spec_.latent_size}, -1);
  mx::array keys = split_heads(kv[1], 1);
  return {
      q[0],
      (*spec_.rope)(q[1], first, selection_),
      mx::expand_dims(kv_a_norm_(kv[0]), 1),
      (*spec_.rope)(keys, first, selection_)};
}

mx::array LatentAttention::as_reference(
    const Parts& parts,
    const kernels::AttentionMask& mask,
    cache::KVCache& cache) const {
  auto view = cache.append(parts.latents, parts.rotated_keys);
  if (const auto* dense = std::get_if<kernels::DenseView>(&view)) {
    return attend_as_reference(parts, mask, *dense);
  }
  const auto* rows = std::get_if<kernels::RowsView>(&view);
  if (!rows) {
    fail_view();
  }
  std::vector<mx::array> results;
  for (int i = 0; i < static_cast<int>(rows->rows.size()); ++i) {
    const auto& row = rows->rows[i];
    Parts own{
        row_of(parts.plain_queries, i),
        row_of(parts.rotated_queries, i),
        row_of(parts.latents, i),
        row_of(parts.rotated_keys, i)};
    results.push_back(attend_as_reference(own, {"", row.mask}, row.tokens));
  }
  return mx::concatenate(results, 0);
}

mx::array LatentAttention::attend_as_reference(
    const Parts& parts,
    const kernels::AttentionMask& mask,
    const kernels::DenseView& tokens) const {
  const auto& [latents, keys] = tokens;
  int length = parts.plain_queries.shape(2);
  mx::Dtype dtype = parts.rotated_queries.dtype();
  mx::array scores = mx::matmul(
      mx::multiply(parts.rotated_queries, mx::array(spec_.scale, dtype)),
      mx::swapaxes(keys, -1, -2));
  auto seen = visible_keys(mask, length, latents.shape(2));
  if (seen) {
    mx::array lowest(mx::finfo(scores.dtype()).min, scores.dtype());
    scores = mx::where(*seen, scores, lowest);
  }
  kernels::AttentionOptions options{.scale = spec_.scale, .mask = {"", scores}};
  if (length == 1) {
    return unembed_out_(kernels::plain_attention(
        embed_q_(parts.plain_queries),
        latents,
        latents,
        options));
  }
  return kernels::plain_attention(
      parts.plain_queries,
      embed_q_.transposed(latents),
      unembed_out_(latents),
      options);
}

mx::array LatentAttention::on_latents(
    const Parts& parts,
    const kernels::AttentionMask& mask,
    cache::KVCache& cache) const {
  mx::array keys = mx::concatenate({parts.latents, parts.rotated_keys}, -1);
  auto view = keys_twice(cache.append(keys, parts.rotated_keys));
  mx::array queries = mx::concatenate(
      {embed_q_(parts.plain_queries), parts.rotated_queries},
      -1);
  // What the rotated part adds up to is cut off.
  mx::array out = kernels::attention(
      queries,
      view,
      {.scale = spec_.scale, .mask = mask},
      selection_);
  mx::Shape stop = out.shape();
  stop.back() = spec_.latent_size;
  return unembed_out_(mx::slice(out, {0, 0, 0, 0}, stop));
}

mx::array LatentAttention::operator()(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::KVCache& cache) const {
  Parts parts = project(x, cache.position());
  bool packed = embed_q_.is_packed() && unembed_out_.is_packed();
  return o_(join_heads(
      packed ? on_latents(parts, mask, cache)
             : as_reference(parts, mask, cache)));
}

void LatentAttention::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  if (q_) {
    q_->visit(prefix + ".q_proj", visitor);
  } else {
    q_a_->visit(prefix + ".q_a_proj", visitor);
    q_a_norm_->visit(prefix + ".q_a_layernorm", visitor);
    q_b_->visit(prefix + ".q_b_proj", visitor);
  }
  kv_a_.visit(prefix + ".kv_a_proj_with_mqa", visitor);
  kv_a_norm_.visit(prefix + ".kv_a_layernorm", visitor);
  embed_q_.visit(prefix + ".embed_q", visitor);
  unembed_out_.visit(prefix + ".unembed_out", visitor);
  o_.visit(prefix + ".o_proj", visitor);
}

}  // namespace mlxx::nn
