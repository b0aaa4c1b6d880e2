#include "mlxx/plan/state_growth.h"

#include <algorithm>

#include "mlxx/cache/chunked.h"
#include "mlxx/cache/composite.h"
#include "mlxx/cache/decoder_cache.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/rotating.h"

namespace mlxx::plan {

namespace {

// `cache` holds one token. Room is made for whole steps, so what it holds now
// says what each token takes.
StateGrowth growth_of(const cache::LayerCache& cache) {
  StateGrowth growth;
  growth.layers = 1;
  const size_t bytes = cache.nbytes();
  if (dynamic_cast<const cache::DecoderCache*>(&cache)) {
    growth.kind = "blocks";
    growth.step = cache::kBlockTokens;
  } else if (dynamic_cast<const cache::DenseCache*>(&cache)) {
    growth.kind = "dense";
    growth.step = cache::DenseCache::kStep;
  } else if (
      const auto* window = dynamic_cast<const cache::RotatingCache*>(&cache)) {
    growth.kind = "window";
    growth.most_tokens = window->window();
    growth.step = std::min(cache::RotatingCache::kStep, growth.most_tokens);
  } else if (
      const auto* chunk = dynamic_cast<const cache::ChunkedCache*>(&cache)) {
    growth.kind = "chunk";
    growth.most_tokens = chunk->length();
    growth.step = cache::ChunkedCache::kStep;
  } else {
    growth.kind = "fixed";
    growth.fixed_bytes = bytes;
    return growth;
  }
  growth.token_bytes = bytes / static_cast<size_t>(growth.step);
  return growth;
}

void add(const cache::LayerCache& cache, std::vector<StateGrowth>& all) {
  if (const auto* parts = dynamic_cast<const cache::CompositeCache*>(&cache)) {
    for (int i = 0; i < parts->size(); ++i) {
      add(parts->part(i), all);
    }
    return;
  }
  StateGrowth growth = growth_of(cache);
  auto same = std::ranges::find_if(all, [&](const StateGrowth& other) {
    return other.kind == growth.kind && other.step == growth.step &&
        other.most_tokens == growth.most_tokens;
  });
  if (same == all.end()) {
    all.push_back(std::move(growth));
    return;
  }
  same->layers += 1;
  same->fixed_bytes += growth.fixed_bytes;
  same->token_bytes += growth.token_bytes;
}

}  // namespace

size_t StateGrowth::bytes(int tokens, int chunk) const {
  if (tokens <= 0) {
    return 0;
  }
  int64_t kept = tokens;
  if (most_tokens > 0) {
    kept = std::min<int64_t>(kept, int64_t{most_tokens} + chunk - 1);
  }
  int64_t rounded = (kept + step - 1) / step * step;
  if (most_tokens > 0) {
    rounded = std::min(rounded, std::max<int64_t>(kept, most_tokens));
  }
  return fixed_bytes + token_bytes * static_cast<size_t>(rounded);
}

std::vector<StateGrowth> state_growth(const models::Model& model) {
  auto caches = model.make_cache({});
  model.forward_last(mx::zeros({1, 1}, mx::int32), caches);
  std::vector<StateGrowth> all;
  for (const auto& cache : caches) {
    add(*cache, all);
  }
  return all;
}

}  // namespace mlxx::plan
