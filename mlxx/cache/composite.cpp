#include "mlxx/cache/composite.h"

#include <algorithm>

#include "mlxx/cache/shared_copies.h"

namespace mlxx::cache {

CompositeCache::CompositeCache(CacheList parts) : parts_(std::move(parts)) {
  if (parts_.empty()) {
    fail(ErrorKind::internal, "cache", "a composite of nothing");
  }
}

LayerCache& CompositeCache::part(int index) const {
  if (index < 0 || index >= static_cast<int>(parts_.size())) {
    fail(ErrorKind::internal, "cache", "part {} of {}", index, parts_.size());
  }
  return *parts_[index];
}

int CompositeCache::trim(int n) {
  if (!is_trimmable()) {
    return 0;
  }
  // What one part cannot drop no part may.
  int dropped = std::clamp(n, 0, droppable());
  for (auto& part : parts_) {
    part->trim(dropped);
  }
  return dropped;
}

bool CompositeCache::is_trimmable() const {
  return std::ranges::all_of(parts_, [](const auto& part) {
    return part->is_trimmable();
  });
}

int CompositeCache::droppable() const {
  return cache::droppable(parts_);
}

bool CompositeCache::is_always_trimmable() const {
  return cache::is_always_trimmable(parts_);
}

std::unique_ptr<LayerCache> CompositeCache::shared_copy(int tokens) const {
  return std::make_unique<CompositeCache>(shared_copies(parts_, tokens));
}

void CompositeCache::share_front(const LayerCache& other, int tokens) {
  const auto* same = dynamic_cast<const CompositeCache*>(&other);
  if (same) {
    cache::share_front(parts_, same->parts_, tokens);
  }
}

std::vector<HeldMemory> CompositeCache::memory() const {
  return cache::memory(parts_);
}

size_t CompositeCache::nbytes() const {
  size_t bytes = 0;
  for (const auto& part : parts_) {
    bytes += part->nbytes();
  }
  return bytes;
}

std::vector<mx::array> CompositeCache::state() const {
  std::vector<mx::array> arrays;
  for (const auto& part : parts_) {
    for (auto& array : part->state()) {
      arrays.push_back(array);
    }
  }
  return arrays;
}

StoredState CompositeCache::store() const {
  StoredState state{"composite", {}, {}, {}};
  for (const auto& part : parts_) {
    state.parts.push_back(part->store());
  }
  return state;
}

void CompositeCache::restore(const StoredState& state) {
  expect_stored(state, "composite", 0, 0, parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i]->restore(state.parts[i]);
  }
}

std::unique_ptr<LayerCache> CompositeCache::empty_copy() const {
  CacheList parts;
  for (const auto& part : parts_) {
    parts.push_back(part->empty_copy());
  }
  return std::make_unique<CompositeCache>(std::move(parts));
}

}  // namespace mlxx::cache
