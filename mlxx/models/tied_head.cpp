#include "mlxx/base/log.h"
#include "mlxx/models/decoder_config.h"

namespace mlxx::models {
namespace {

bool same_weights(const hub::Weight& a, const hub::Weight& b) {
  auto equal = [](const std::optional<mx::array>& x,
                  const std::optional<mx::array>& y) {
    return x.has_value() == y.has_value() &&
        (!x || mx::array_equal(*x, *y).item<bool>());
  };
  return equal(a.weight, b.weight) && equal(a.scales, b.scales) &&
      equal(a.biases, b.biases);
}

}  // namespace

bool read_tied(const DecoderConfig& config, const DecoderSpec& spec) {
  const auto& checkpoint = config.checkpoint();
  const JsonView& view = config.view();
  constexpr auto kKey = "tie_word_embeddings";
  std::string head = spec.head + ".weight";
  std::string embedding = spec.embedding + ".weight";
  bool has_head = config.has_tensor(head);
  bool tied = view.boolean_or(kKey, !has_head);
  if (view.has("text_config")) {
    tied = view.object("text_config").boolean_or(kKey, tied);
  }
  if (!tied && !has_head && !checkpoint.tensors().empty()) {
    log_warning(
        "{}: not tied, but without {}: the embedding is used",
        checkpoint.path().string(),
        head);
    return true;
  }
  if (tied && has_head && config.has_tensor(embedding) &&
      !same_weights(
          checkpoint.load(head, {}),
          checkpoint.load(embedding, {}))) {
    log_warning(
        "{}: tied, yet {} differs from the embedding; the embedding is used",
        checkpoint.path().string(),
        head);
  }
  return tied;
}

}  // namespace mlxx::models
