#include "mlxx/generate/sequence.h"

#include <algorithm>

namespace mlxx::generate {

namespace {

// Drops the newest n tokens of every layer; false if a layer cannot, in which
// case the layers may disagree and the caches must not be used any more.
bool cut_back(cache::CacheList& caches, int n) {
  if (n == 0) {
    return true;
  }
  for (const auto& cache : caches) {
    if (!cache->is_trimmable()) {
      return false;
    }
  }
  for (const auto& cache : caches) {
    if (cache->trim(n) != n) {
      return false;
    }
  }
  return true;
}

}  // namespace

void Sequence::clear() {
  caches.clear();
  tokens.clear();
}

int reuse_prefix(
    Sequence& sequence,
    const std::vector<int32_t>& prompt,
    const models::Model& model,
    const models::CacheOptions& options) {
  if (sequence.made_for != options) {
    sequence.clear();
  }
  if (!sequence.caches.empty()) {
    auto limit = std::min(sequence.tokens.size(), prompt.size() - 1);
    auto end = prompt.begin() + static_cast<std::ptrdiff_t>(limit);
    auto differs =
        std::mismatch(prompt.begin(), end, sequence.tokens.begin()).first;
    auto keep = static_cast<size_t>(differs - prompt.begin());
    auto surplus = static_cast<int>(sequence.tokens.size() - keep);
    // With nothing to keep, new caches also give back the spare room.
    if (keep > 0 && cut_back(sequence.caches, surplus)) {
      sequence.tokens.resize(keep);
      return static_cast<int>(keep);
    }
    sequence.clear();
  }
  sequence.caches = model.make_cache(options);
  sequence.made_for = options;
  return 0;
}

}  // namespace mlxx::generate
