#pragma once

#include <optional>

#include "mlxx/core/mlx.h"
#include "mlxx/generate/sampling.h"

namespace mlxx::generate {

// Changes logits before sampling, in mlx-lm's order: logit bias, repetition,
// presence, frequency. Immutable.
class LogitsProcessors {
 public:
  // `options` must have passed validate().
  explicit LogitsProcessors(const SamplingOptions& options);

  // True if apply() returns its argument.
  bool empty() const {
    return !bias_values_ && !needs_tokens();
  }
  // True if apply() looks at the tokens so far.
  bool needs_tokens() const;
  // How many of the newest tokens apply() can look at; 0 means all.
  int window() const;

  // logits [B, V] in any floating type -> [B, V] float32. tokens [B, W] int32
  // are the newest tokens of each row, prompt included, newest last; W may be
  // anything from 1 up to window().
  mx::array apply(const mx::array& logits, const mx::array& tokens) const;

 private:
  bool repeats() const {
    return options_.repetition_penalty != 0 && options_.repetition_penalty != 1;
  }

  SamplingOptions options_;
  std::optional<mx::array> bias_ids_;     // [1, n] int32
  std::optional<mx::array> bias_values_;  // [1, n] float32
};

}  // namespace mlxx::generate
