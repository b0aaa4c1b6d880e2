#include <algorithm>

#include "mlxx/cache/shared_copies.h"
#include "mlxx/cache/states.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/core/mlx_errors.h"
#include "mlxx/engine/model_row.h"
#include "mlxx/engine/model_runner.h"
#include "mlxx/generate/prefill.h"
#include "mlxx/models/fused_decoder.h"

// Prompts of rows, one by one or together.
namespace mlxx::engine {

int ModelRunner::prefill(Row& row, int tokens) {
  RowState& state = *state_of(row);
  int total = state.prompt_tokens;
  auto left = [&] { return total - 1 - state.computed; };
  bool trimmable = cache::is_always_trimmable(state.caches);
  std::span<const int32_t> prompt(state.tokens);
  while (tokens > 0 && left() > 0) {
    int length = generate::chunk_length(tokens, state.computed, total);
    if (options_.prefixes) {
      length = std::min(
          length,
          options_.prefixes->tokens_to_checkpoint(
              state.space,
              prompt,
              state.computed,
              total - 1,
              trimmable));
    }
    length = std::max(length, 1);
    with_mlx_errors("prefill", [&] {
      auto first = state.tokens.begin() + state.computed;
      mx::array chunk(first, {1, length}, mx::int32);
      auto adapters = adapters::adapters_of_rows({state.adapters});
      nn::AdapterScope scope(state.adapters ? adapters.get() : nullptr);
      // The logits stay lazy and are dropped; only the caches are evaluated.
      model_->forward_last(chunk, state.caches);
      evaluate(state.caches);
      clear_cache();
    });
    state.computed += length;
    tokens -= length;
    // What cannot be cut back is kept here and there; what can, once.
    if (!trimmable || left() == 0) {
      remember(state.space, prompt.first(state.computed), state.caches);
    }
  }
  return left();
}

// There a pass through the layers costs as many launches for one token as for
// many, and brings all weights into another form.
int ModelRunner::least_chunk() const {
  return backend() == Backend::cuda ? 1024 : Runner::least_chunk();
}

bool ModelRunner::joins_prompts() const {
  return backend() == Backend::cuda;
}

bool ModelRunner::prefill_together(std::span<Row* const> rows) {
  std::vector<RowState*> states;
  std::vector<cache::CacheList*> caches;
  std::vector<std::shared_ptr<const adapters::AdapterStack>> stacks;
  std::vector<int> lengths;
  bool any_adapters = false;
  for (Row* row : rows) {
    RowState& state = *state_of(*row);
    int length = state.prompt_tokens - 1 - state.computed;
    if (length <= 0 || !models::FusedDecoder::made(state.caches)) {
      return false;
    }
    states.push_back(&state);
    caches.push_back(&state.caches);
    stacks.push_back(state.adapters);
    lengths.push_back(length);
    any_adapters |= state.adapters != nullptr;
  }
  int longest = *std::ranges::max_element(lengths);
  return with_mlx_errors("prefill", [&] {
    std::vector<int32_t> ids;
    for (size_t b = 0; b < states.size(); ++b) {
      auto first = states[b]->tokens.begin() + states[b]->computed;
      ids.insert(ids.end(), first, first + lengths[b]);
      ids.resize((b + 1) * static_cast<size_t>(longest));
    }
    mx::array tokens(
        ids.data(),
        {static_cast<int>(rows.size()), longest},
        mx::int32);
    auto adapters = adapters::adapters_of_rows(std::move(stacks));
    nn::AdapterScope scope(any_adapters ? adapters.get() : nullptr);
    if (!model_->append_prompts(tokens, lengths, caches)) {
      return false;
    }
    // What the last row waits for, all wait for.
    evaluate(states.back()->caches);
    clear_cache();
    for (size_t b = 0; b < states.size(); ++b) {
      RowState& state = *states[b];
      state.computed += lengths[b];
      remember(
          state.space,
          std::span<const int32_t>(state.tokens).first(state.computed),
          state.caches);
    }
    return true;
  });
}

}  // namespace mlxx::engine
