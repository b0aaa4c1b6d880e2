#include "mlxx/train/text_pass.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/core/checkpoint.h"
#include "mlxx/kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "mlxx/nn/row_adapters.h"

namespace mlxx::train {
namespace {

// Rows whose logits are there at one time.
constexpr int kRows = 256;

// logits [n, V], targets [n] -> [n] float32
mx::array log_probabilities(const mx::array& logits, const mx::array& targets) {
  mx::array scores = mx::astype(logits, mx::float32);
  mx::array chosen =
      mx::take_along_axis(scores, mx::expand_dims(targets, 1), 1);
  return mx::subtract(mx::squeeze(chosen, 1), mx::logsumexp(scores, 1));
}

// The same in the order of mlx.nn's cross_entropy.
mx::array plain_log_probabilities(
    const mx::array& logits,
    const mx::array& targets) {
  mx::array scores = mx::astype(logits, mx::float32);
  scores = mx::subtract(
      scores,
      mx::stop_gradient(mx::max(scores, -1, /* keepdims= */ true)));
  mx::array chosen =
      mx::take_along_axis(scores, mx::expand_dims(targets, -1), -1);
  return mx::negative(
      mx::subtract(mx::logsumexp(scores, -1), mx::squeeze(chosen, -1)));
}

mx::array slice_rows(const mx::array& x, int begin, int end) {
  mx::Shape from(x.ndim(), 0);
  mx::Shape to = x.shape();
  from[0] = begin;
  to[0] = end;
  return mx::slice(x, from, to);
}

// Columns from `begin` on, to `end` places before the end: [B, L] -> [B, n]
mx::array columns(const mx::array& x, int begin, int end) {
  return mx::slice(x, {0, begin}, {x.shape(0), x.shape(1) + end});
}

// Whether an adapter of the scope changes the head's product.
bool is_adapted(const models::HeadParts& head) {
  const auto* adapters = nn::active_adapters();
  if (!adapters) {
    return false;
  }
  const auto& shape = head.weight->shape();
  mx::array x = mx::zeros({1, 1, shape[1]});
  auto product = [&] { return mx::zeros({1, 1, shape[0]}); };
  if (head.tied) {
    return adapters->head(*head.weight, x, product).has_value();
  }
  return adapters
      ->product(*head.weight, std::nullopt, x, [&](bool) { return product(); })
      .has_value();
}

}  // namespace

TextPass::TextPass(
    const models::Model& model,
    const data::Batch& batch,
    bool trains_head)
    : model_(model),
      face_(model.training_face()),
      trains_head_(trains_head),
      targets_(batch),
      tokens_(batch.tokens.data(), {batch.rows, batch.length}, mx::int32) {
  auto summary = model.summary();
  for (int32_t token : batch.tokens) {
    if (token < 0 || token >= summary.vocab_size) {
      fail(
          ErrorKind::invalid_request,
          "batch",
          "token {} of a vocabulary of {}",
          token,
          summary.vocab_size);
    }
  }
  if (batch.segments.empty()) {
    plain_ =
        face_ && batch.length > 1 && face_->head_parts().selection.fallback;
    if (plain_) {
      targets_of_rows_ = mx::array(
          batch.targets.data(),
          {batch.rows, batch.length},
          mx::uint8);
    }
    return;
  }
  if (!face_ || !face_->takes_packed_rows()) {
    fail(
        ErrorKind::unsupported,
        summary.model_type,
        "its layers cannot keep the samples of a packed row apart");
  }
  for (const auto& segment : batch.segments) {
    rows_.segments.push_back({segment.begin, segment.end, segment.parent});
  }
}

int TextPass::layers() const {
  return face_ ? face_->layer_count() : 0;
}

mx::array TextPass::embedded() const {
  nn::TrainingScope scope(&rows_);
  return face_->embedded(plain_ ? columns(tokens_, 0, -1) : tokens_);
}

mx::array TextPass::layer(int index, const mx::array& h, bool keeps_products)
    const {
  nn::TrainingRows rows = rows_;
  rows.keeps_products = keeps_products;
  nn::TrainingScope scope(&rows);
  return face_->layer_output(index, h);
}

mx::array TextPass::scores(const mx::array& h, bool differentiable) const {
  if (targets_.count() == 0) {
    return targets_.placed(h);
  }
  if (plain_) {
    return plain_scores(h);
  }
  mx::array states = face_->normed(targets_.states(h));
  auto head = face_->head_parts();
  if (is_adapted(head)) {
    return targets_.placed(
        scores_in_pieces(states, targets_.tokens(), log_probabilities));
  }
  float factor = head.multiplier / head.divisor;
  return targets_.placed(kernels::linear_log_probabilities(
      states,
      targets_.tokens(),
      {.weight = head.weight,
       .bias = head.bias,
       .factor = factor / head.input_divisor,
       .bias_factor = factor,
       .softcap = head.softcap,
       .trains_weight = trains_head_,
       .differentiable = differentiable},
      head.selection));
}

// As the reference's loss, whose sums run over all tokens but the last of each
// row, targets or not. Only a few rows are one piece as there: of more, logits
// are not kept.
mx::array TextPass::plain_scores(const mx::array& h) const {
  mx::array next = columns(tokens_, 1, 0);
  mx::array normed = face_->normed(h);
  int all = next.shape(0) * next.shape(1);
  std::optional<mx::array> scores;
  if (all <= kRows) {
    scores = plain_log_probabilities(face_->logits(normed), next);
  } else {
    scores = mx::reshape(
        scores_in_pieces(
            mx::reshape(normed, {all, h.shape(2)}),
            mx::reshape(next, {all}),
            plain_log_probabilities),
        next.shape());
  }
  scores = mx::multiply(
      *scores,
      mx::astype(columns(*targets_of_rows_, 1, 0), mx::float32));
  return mx::concatenate(
      {mx::zeros({next.shape(0), 1}, mx::float32), *scores},
      1);
}

// Through the model's own head, whatever changes it.
mx::array TextPass::scores_in_pieces(
    const mx::array& states,
    const mx::array& targets,
    mx::array (*score)(const mx::array&, const mx::array&)) const {
  std::vector<mx::array> parts;
  int count = states.shape(0);
  for (int at = 0; at < count; at += kRows) {
    int end = std::min(at + kRows, count);
    mx::array tokens = slice_rows(targets, at, end);
    auto scored =
        checkpointed([this, tokens, score](const std::vector<mx::array>& x) {
          mx::array logits = face_->logits(mx::expand_dims(x[0], 0));
          return std::vector<mx::array>{score(mx::squeeze(logits, 0), tokens)};
        });
    parts.push_back(scored({slice_rows(states, at, end)})[0]);
  }
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

mx::array TextPass::scores(bool differentiable) const {
  if (face_) {
    mx::array h = embedded();
    for (int i = 0; i < layers(); ++i) {
      h = layer(i, h);
    }
    return scores(h, differentiable);
  }
  auto cache = model_.make_cache({.per_layer = true});
  mx::array logits = model_.forward(tokens_, cache);
  if (targets_.count() == 0) {
    return targets_.placed(logits);
  }
  return targets_.placed(
      log_probabilities(targets_.states(logits), targets_.tokens()));
}

}  // namespace mlxx::train
