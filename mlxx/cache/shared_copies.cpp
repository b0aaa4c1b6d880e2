#include "mlxx/cache/shared_copies.h"

#include <algorithm>

#include "mlxx/core/materialize.h"

namespace mlxx::cache {
namespace {

// What an allocator may round up to.
constexpr size_t kSpareBytes = 16 << 10;

}  // namespace

std::vector<HeldMemory> LayerCache::memory() const {
  std::vector<HeldMemory> held;
  for (const mx::array& array : state()) {
    // An array that nobody evaluates yet has no memory.
    if (array.status() != mx::array::Status::unscheduled && array.size() > 0) {
      held.push_back({array.data_shared_ptr(), array.buffer_size()});
    }
  }
  return held;
}

int tokens_to_drop(const LayerCache& layer, int tokens) {
  int dropped = layer.offset() - tokens;
  if (dropped < 0 || dropped > layer.droppable()) {
    fail(
        ErrorKind::internal,
        "cache",
        "{} tokens cannot become {}",
        layer.offset(),
        tokens);
  }
  return dropped;
}

CacheList shared_copies(const CacheList& caches, int tokens) {
  CacheList copies;
  for (const auto& layer : caches) {
    copies.push_back(layer->shared_copy(tokens));
    if (copies.back()->offset() != tokens) {
      fail(
          ErrorKind::internal,
          "cache",
          "a layer keeps {} tokens instead of {}",
          copies.back()->offset(),
          tokens);
    }
  }
  return copies;
}

CacheList shared_copies(const CacheList& caches) {
  return shared_copies(caches, tokens_in(caches));
}

int tokens_in(const CacheList& caches) {
  int tokens = caches.empty() ? 0 : caches.front()->offset();
  for (const auto& layer : caches) {
    if (layer->offset() != tokens) {
      fail(
          ErrorKind::internal,
          "cache",
          "one layer has seen {} tokens, another one {}",
          tokens,
          layer->offset());
    }
  }
  return tokens;
}

int droppable(const CacheList& caches) {
  int tokens = caches.empty() ? 0 : caches.front()->offset();
  for (const auto& layer : caches) {
    tokens = std::min(tokens, layer->droppable());
  }
  return tokens;
}

bool is_always_trimmable(const CacheList& caches) {
  return std::ranges::all_of(caches, [](const auto& layer) {
    return layer->is_always_trimmable();
  });
}

void share_front(CacheList& caches, const CacheList& other, int tokens) {
  for (size_t i = 0; i < std::min(caches.size(), other.size()); ++i) {
    caches[i]->share_front(*other[i], tokens);
  }
}

std::vector<HeldMemory> memory(const CacheList& caches) {
  std::vector<HeldMemory> held;
  for (const auto& layer : caches) {
    for (auto& part : layer->memory()) {
      held.push_back(std::move(part));
    }
  }
  return held;
}

mx::array in_own_memory(const mx::array& array) {
  bool has_memory =
      array.status() != mx::array::Status::unscheduled && array.size() > 0;
  return has_memory && array.buffer_size() > 2 * array.nbytes() + kSpareBytes
      ? materialize_copy(array)
      : array;
}

void start_evaluation(const CacheList& caches) {
  std::vector<mx::array> waiting;
  for (const auto& layer : caches) {
    for (auto& array : layer->state()) {
      if (array.status() == mx::array::Status::unscheduled) {
        waiting.push_back(std::move(array));
      }
    }
  }
  if (!waiting.empty()) {
    mx::async_eval(std::move(waiting));
  }
}

}  // namespace mlxx::cache
