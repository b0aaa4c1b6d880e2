#include "mlxx/generate/logits_processors.h"

#include <algorithm>
#include <vector>

namespace mlxx::generate {

namespace {

// The newest n of tokens [B, W]; all for n = 0.
mx::array newest(const mx::array& tokens, int n) {
  int width = tokens.shape(1);
  if (n == 0 || n >= width) {
    return tokens;
  }
  return mx::slice(tokens, {0, width - n}, {tokens.shape(0), width});
}

// Sign-aware, as in https://arxiv.org/abs/1909.05858. An id that occurs twice
// is written twice with the same value.
mx::array
repetition(const mx::array& logits, const mx::array& tokens, float penalty) {
  auto seen = mx::take_along_axis(logits, tokens, -1);
  auto factor = mx::array(penalty);
  auto punished =
      mx::where(seen < mx::array(0.0f), seen * factor, seen / factor);
  return mx::put_along_axis(logits, tokens, punished, -1);
}

mx::array
presence(const mx::array& logits, const mx::array& tokens, float penalty) {
  auto seen = mx::take_along_axis(logits, tokens, -1);
  return mx::put_along_axis(logits, tokens, seen - mx::array(penalty), -1);
}

mx::array
frequency(const mx::array& logits, const mx::array& tokens, float penalty) {
  auto step = mx::full(tokens.shape(), -penalty, mx::float32);
  return mx::scatter_add_axis(logits, tokens, step, -1);
}

}  // namespace

LogitsProcessors::LogitsProcessors(const SamplingOptions& options)
    : options_(options) {
  if (options.logit_bias.empty()) {
    return;
  }
  std::vector<int32_t> ids;
  std::vector<float> values;
  for (const auto& [id, bias] : options.logit_bias) {
    ids.push_back(id);
    values.push_back(std::clamp(bias, -100.0f, 100.0f));
  }
  auto n = static_cast<mx::ShapeElem>(ids.size());
  bias_ids_ = mx::array(ids.begin(), {1, n}, mx::int32);
  bias_values_ = mx::array(values.begin(), {1, n}, mx::float32);
}

bool LogitsProcessors::needs_tokens() const {
  return repeats() || options_.presence_penalty != 0 ||
      options_.frequency_penalty != 0;
}

int LogitsProcessors::window() const {
  bool others =
      options_.presence_penalty != 0 || options_.frequency_penalty != 0;
  if (!others) {
    return options_.repetition_context_size;
  }
  if (!repeats()) {
    return options_.penalty_context_size;
  }
  if (options_.repetition_context_size == 0 ||
      options_.penalty_context_size == 0) {
    return 0;
  }
  return std::max(
      options_.repetition_context_size,
      options_.penalty_context_size);
}

mx::array LogitsProcessors::apply(
    const mx::array& logits,
    const mx::array& tokens) const {
  auto result = mx::astype(logits, mx::float32);
  if (bias_values_) {
    mx::Shape shape{logits.shape(0), bias_ids_->shape(1)};
    result = mx::scatter_add_axis(
        result,
        mx::broadcast_to(*bias_ids_, shape),
        mx::broadcast_to(*bias_values_, shape),
        -1);
  }
  if (repeats()) {
    result = repetition(
        result,
        newest(tokens, options_.repetition_context_size),
        options_.repetition_penalty);
  }
  auto recent = newest(tokens, options_.penalty_context_size);
  if (options_.presence_penalty != 0) {
    result = presence(result, recent, options_.presence_penalty);
  }
  if (options_.frequency_penalty != 0) {
    result = frequency(result, recent, options_.frequency_penalty);
  }
  return result;
}

}  // namespace mlxx::generate
