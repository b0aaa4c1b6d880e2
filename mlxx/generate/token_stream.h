#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/generate/compiled_step.h"
#include "mlxx/generate/logits_processors.h"
#include "mlxx/generate/sampler.h"
#include "mlxx/generate/sequence.h"
#include "mlxx/models/model.h"

namespace mlxx::generate {

struct TokenStreamOptions {
  SamplingOptions sampling;  // must have passed validate()
  int64_t seed = 0;
  int max_tokens = 0;
  // Runs the steps if it is set; of the stream's model, and outlives it.
  CompiledStep* step = nullptr;
};

// The decode loop of one sequence, in tokens. Each step is handed to the
// device before the token of the step before it is read, so that building the
// next graph and whatever the caller does with a token cost no device time.
// Not thread-safe; model and sequence must outlive it.
class TokenStream {
 public:
  // `sequence` holds all of `prompt` but its last token. Nothing is computed
  // until next().
  TokenStream(
      const models::Model& model,
      const std::vector<int32_t>& prompt,
      Sequence& sequence,
      const TokenStreamOptions& options);
  // Waits for the step in flight, if there is one.
  ~TokenStream();
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  // The next token, or nothing after max_tokens of them. Unless it was the
  // last, the caches hold it (its successor is already being computed) and
  // sequence.tokens too. Errors: internal if the logits are not finite.
  std::optional<int32_t> next();

 private:
  struct Step {
    mx::array token;  // [1] int32
    mx::array check;  // [1] float32
  };
  mx::array logits_after(const mx::array& input);
  // Feeds `input` ([1] int32) and enqueues the choice of its successor.
  Step enqueue(const mx::array& input);
  mx::array window(const mx::array& newest) const;

  const models::Model& model_;
  Sequence& sequence_;
  Sampler sampler_;
  LogitsProcessors processors_;
  TokenStreamOptions options_;
  std::optional<int32_t> unfed_;  // the last prompt token, until it is fed
  std::optional<Step> in_flight_;
  int enqueued_ = 0;
  int returned_ = 0;
};

}  // namespace mlxx::generate
