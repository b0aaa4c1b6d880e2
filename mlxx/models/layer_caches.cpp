#include "mlxx/models/layer_caches.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/cache/chunked.h"
#include "mlxx/cache/composite.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/padded.h"
#include "mlxx/cache/recurrent.h"
#include "mlxx/cache/rotating.h"

namespace mlxx::models {
namespace {

// The first tokens stay when --max-kv-size drops old ones: attention leans on
// them.
constexpr int kTokensKept = 4;

std::unique_ptr<cache::KVCache> attention_cache(int window, int limit) {
  if (window > 0) {
    return std::make_unique<cache::RotatingCache>(
        limit > 0 ? std::min(limit, window) : window);
  }
  if (limit > 0) {
    return std::make_unique<cache::RotatingCache>(limit, kTokensKept);
  }
  return std::make_unique<cache::DenseCache>();
}

}  // namespace

std::unique_ptr<cache::LayerCache> make_layer_cache(
    const nn::StateSpec& state,
    const CacheOptions& options) {
  switch (state.kind) {
    case nn::StateSpec::Kind::attention: {
      auto kv = attention_cache(state.window, options.max_kv_size);
      if (options.left_padding.empty()) {
        return kv;
      }
      return std::make_unique<cache::PaddedCache>(
          std::move(kv),
          options.left_padding);
    }
    case nn::StateSpec::Kind::recurrent:
      return std::make_unique<cache::RecurrentCache>(
          state.slots,
          options.left_padding);
    case nn::StateSpec::Kind::composite: {
      cache::CacheList parts;
      for (const auto& part : state.parts) {
        parts.push_back(make_layer_cache(part, options));
      }
      return std::make_unique<cache::CompositeCache>(std::move(parts));
    }
    case nn::StateSpec::Kind::chunked:
      if (!options.left_padding.empty()) {
        fail(
            ErrorKind::unsupported,
            "models",
            "rows of different lengths with attention in chunks");
      }
      return std::make_unique<cache::ChunkedCache>(state.window);
  }
  fail(ErrorKind::internal, "models", "no cache of that kind");
}

}  // namespace mlxx::models
