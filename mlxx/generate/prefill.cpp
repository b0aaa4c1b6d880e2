#include "mlxx/generate/prefill.h"

#include <algorithm>

#include "mlxx/cache/states.h"
#include "mlxx/core/memory.h"
#include "mlxx/core/mlx.h"
#include "mlxx/core/mlx_errors.h"

namespace mlxx::generate {

namespace {

constexpr int64_t kChunkBudget = int64_t{2048} * 32768;
constexpr int64_t kSmallestChunk = 64;

}  // namespace

int chunk_length(int step_size, int done, int total) {
  int64_t length = std::min(step_size, total - 1 - done);
  int64_t affordable = kChunkBudget / (done + length);
  return static_cast<int>(
      std::min(length, std::max(affordable, kSmallestChunk)));
}

bool prefill(
    const models::Model& model,
    const std::vector<int32_t>& prompt,
    Sequence& sequence,
    const PrefillOptions& options) {
  auto total = static_cast<int>(prompt.size());
  auto done = [&] { return static_cast<int>(sequence.tokens.size()); };
  auto report = [&] {
    if (options.on_progress) {
      options.on_progress(done(), total);
    }
  };
  report();
  while (done() < total - 1) {
    if (options.is_cancelled && options.is_cancelled()) {
      return false;
    }
    int length = chunk_length(options.step_size, done(), total);
    auto first = prompt.begin() + done();
    with_mlx_errors("prefill", [&] {
      mx::array chunk(first, {1, length}, mx::int32);
      // The logits stay lazy and are dropped; only the caches are evaluated.
      model.forward_last(chunk, sequence.caches);
      evaluate(sequence.caches);
      clear_cache();
    });
    sequence.tokens.insert(sequence.tokens.end(), first, first + length);
    report();
  }
  return !(options.is_cancelled && options.is_cancelled());
}

}  // namespace mlxx::generate
