#include "mlxx/models/decoder_ends.h"

namespace mlxx::models {

ModelSummary
summary_of(const Model& model, const DecoderSpec& spec, size_t layers) {
  ModelSummary summary;
  summary.model_type = spec.model_type;
  summary.layers = static_cast<int>(layers);
  summary.hidden_size = spec.hidden_size;
  summary.vocab_size = spec.vocab_size;
  summary.max_position_embeddings = spec.max_position_embeddings;
  model.visit([&](const std::string&, const Parameter& parameter) {
    summary.parameters += parameter.count();
    summary.weight_bytes += parameter.nbytes();
  });
  return summary;
}

mx::array last_position(const mx::array& h) {
  int last = h.shape(1) - 1;
  return mx::slice(h, {0, last, 0}, {h.shape(0), last + 1, h.shape(2)});
}

mx::array logits_of(
    const mx::array& h,
    const DecoderSpec& spec,
    const std::optional<nn::Linear>& head,
    const nn::Embedding& embedding) {
  mx::array x = h;
  if (spec.head_input_divisor != 1) {
    x = mx::divide(x, mx::array(spec.head_input_divisor, x.dtype()));
  }
  mx::array logits = head ? (*head)(x) : embedding.as_linear(x);
  mx::Dtype dtype = logits.dtype();
  if (spec.logits_multiplier != 1) {
    logits = mx::multiply(logits, mx::array(spec.logits_multiplier, dtype));
  }
  if (spec.logits_divisor != 1) {
    logits = mx::divide(logits, mx::array(spec.logits_divisor, dtype));
  }
  if (spec.final_softcap != 0) {
    mx::array cap(spec.final_softcap, dtype);
    logits = mx::multiply(mx::tanh(mx::divide(logits, cap)), cap);
  }
  return logits;
}

}  // namespace mlxx::models
