#pragma once

#include <random>

#include "mlxx/cache/cache.h"
#include "mlxx/cache/dense.h"
#include "mlxx/cache/recurrent.h"

// Prompts and the states that they leave, both made of one number: what a
// program wrote another one can check.
namespace mlxx::engine {

inline std::vector<int32_t> marked_tokens(unsigned number, int n) {
  std::mt19937 random(number);
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(random() % 50'000));
  }
  return tokens;
}

inline cache::CacheList empty_marked_caches() {
  cache::CacheList caches;
  caches.push_back(std::make_unique<cache::DenseCache>());
  caches.push_back(std::make_unique<cache::RecurrentCache>(1));
  return caches;
}

// Keys are the tokens, `width` times; values one more; the state is their sum.
inline cache::CacheList marked_caches(
    const std::vector<int32_t>& tokens,
    int width) {
  cache::CacheList caches = empty_marked_caches();
  int n = static_cast<int>(tokens.size());
  mx::array keys = mx::astype(
      mx::array(tokens.data(), {1, 1, n, 1}, mx::int32),
      mx::float32);
  keys = mx::contiguous(mx::broadcast_to(keys, {1, 1, n, width}));
  cache::cache_as<cache::KVCache>(*caches[0])
      .append(keys, mx::add(keys, mx::array(1.0f)));
  auto& state = cache::cache_as<cache::RecurrentCache>(*caches[1]);
  state.set(0, mx::reshape(mx::sum(keys), {1, 1}));
  state.advance(n);
  mx::eval(caches[0]->state());
  mx::eval(caches[1]->state());
  return caches;
}

// Whether they are those, to the last bit.
inline bool are_marked(
    const cache::CacheList& caches,
    const std::vector<int32_t>& tokens,
    int width) {
  cache::CacheList expected = marked_caches(tokens, width);
  for (size_t i = 0; i < caches.size(); ++i) {
    cache::StoredState a = caches[i]->store();
    cache::StoredState b = expected[i]->store();
    if (a.numbers != b.numbers || a.arrays.size() != b.arrays.size()) {
      return false;
    }
    for (size_t j = 0; j < a.arrays.size(); ++j) {
      if (!mx::array_equal(a.arrays[j], b.arrays[j]).item<bool>()) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace mlxx::engine
