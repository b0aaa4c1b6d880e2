#include "mlxx/engine/prefix_cache.h"

#include <algorithm>
#include <map>

#include "mlxx/base/error.h"
#include "mlxx/cache/shared_copies.h"
#include "mlxx/engine/prefix_memory.h"
#include "mlxx/engine/prefix_trie.h"

namespace mlxx::engine {
namespace {

using cache::kBlockTokens;

constexpr int kCheckpointStep = 512;
constexpr int kMostCheckpoints = 8;

int whole_blocks(int tokens) {
  return tokens / kBlockTokens * kBlockTokens;
}

}  // namespace

struct PrefixCache::Impl {
  PrefixCacheOptions options;
  PrefixCacheStats stats;
  std::map<std::string, PrefixTrie> spaces;
  PrefixMemory memory;
  uint64_t clock = 0;

  explicit Impl(const PrefixCacheOptions& from) : options(from) {}

  PrefixEntry* keep(PrefixTrie& trie, std::unique_ptr<PrefixEntry> entry);
  std::unique_ptr<PrefixEntry> drop(PrefixTrie& trie, PrefixEntry* entry);
  void drop_superseded(PrefixTrie& trie, const PrefixEntry& entry);
  bool evict_one();
  void evict(PrefixTrie& trie, PrefixEntry* entry);
  void evict_to(size_t bytes);
  void clear(PrefixTrie& trie);
};

PrefixEntry* PrefixCache::Impl::keep(
    PrefixTrie& trie,
    std::unique_ptr<PrefixEntry> entry) {
  memory.add(cache::memory(entry->caches));
  ++stats.entries;
  return trie.insert(std::move(entry));
}

std::unique_ptr<PrefixEntry> PrefixCache::Impl::drop(
    PrefixTrie& trie,
    PrefixEntry* entry) {
  memory.remove(cache::memory(entry->caches));
  --stats.entries;
  return trie.remove(entry);
}

// What the entry can be cut back to need not be kept beside it, and of what it
// cannot be only some.
void PrefixCache::Impl::drop_superseded(
    PrefixTrie& trie,
    const PrefixEntry& entry) {
  std::vector<PrefixEntry*> others;
  for (PrefixEntry* other : trie.on_path(entry.tokens)) {
    if (other == &entry) {
      continue;
    }
    if (other->size() >= entry.shortest) {
      drop(trie, other);
    } else {
      others.push_back(other);
    }
  }
  while (std::ssize(others) >= kMostOnPath) {
    auto oldest = std::ranges::min_element(others, {}, &PrefixEntry::used);
    drop(trie, *oldest);
    others.erase(oldest);
  }
}

// False if there is nothing to drop.
bool PrefixCache::Impl::evict_one() {
  PrefixTrie* trie = nullptr;
  PrefixEntry* victim = nullptr;
  for (auto& [space, candidate] : spaces) {
    for (PrefixEntry* entry : candidate.entries()) {
      if (victim && entry->used >= victim->used) {
        continue;
      }
      // What rows hold too is not freed by dropping it here.
      if (memory.bytes_of(cache::memory(entry->caches)) > 0) {
        trie = &candidate;
        victim = entry;
      }
    }
  }
  if (victim) {
    evict(*trie, victim);
  }
  return victim != nullptr;
}

// The whole of it, or what is behind the start that was used since.
void PrefixCache::Impl::evict(PrefixTrie& trie, PrefixEntry* entry) {
  const PrefixNode* start = PrefixTrie::used_since(*entry);
  int length = start ? start->depth : 0;
  uint64_t used = start ? start->used : 0;
  std::unique_ptr<PrefixEntry> dropped = drop(trie, entry);
  ++stats.evictions;
  if (length < std::max(dropped->shortest, 1) || length >= dropped->size()) {
    return;
  }
  std::span<const int32_t> tokens = dropped->tokens;
  if (trie.find(tokens.first(length)).length == length) {
    return;
  }
  auto shorter = std::make_unique<PrefixEntry>();
  shorter->tokens.assign(tokens.begin(), tokens.begin() + length);
  shorter->shortest = dropped->shortest;
  shorter->caches = cache::shared_copies(dropped->caches, length);
  cache::start_evaluation(shorter->caches);
  shorter->used = used;
  dropped.reset();
  keep(trie, std::move(shorter));
}

void PrefixCache::Impl::evict_to(size_t bytes) {
  while (memory.bytes() > bytes && evict_one()) {
  }
}

void PrefixCache::Impl::clear(PrefixTrie& trie) {
  for (PrefixEntry* entry : trie.entries()) {
    drop(trie, entry);
  }
}

PrefixCache::PrefixCache(const PrefixCacheOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
PrefixCache::~PrefixCache() = default;

std::optional<PrefixCache::Hit> PrefixCache::find(
    const std::string& space,
    std::span<const int32_t> prompt) {
  ++impl_->stats.lookups;
  auto found = impl_->spaces.find(space);
  if (found == impl_->spaces.end() || prompt.empty()) {
    return std::nullopt;
  }
  // The last token is always computed: its logits are what comes next.
  auto [entry, length] = found->second.find(prompt.first(prompt.size() - 1));
  if (!entry || length < impl_->options.shortest_hit) {
    return std::nullopt;
  }
  Hit hit{cache::shared_copies(entry->caches, length), length};
  found->second.touch(entry, length, ++impl_->clock);
  ++impl_->stats.hits;
  impl_->stats.tokens_found += static_cast<uint64_t>(length);
  return hit;
}

void PrefixCache::insert(
    const std::string& space,
    std::span<const int32_t> tokens,
    const cache::CacheList& caches) {
  int length = static_cast<int>(tokens.size());
  if (impl_->options.max_bytes == 0 || caches.empty() ||
      length < std::max(impl_->options.shortest_hit, 1)) {
    return;
  }
  PrefixTrie& trie = impl_->spaces[space];
  uint64_t now = ++impl_->clock;
  auto known = trie.find(tokens);
  if (known.length == length) {
    trie.touch(known.entry, length, now);
    return;
  }
  auto entry = std::make_unique<PrefixEntry>();
  try {
    entry->caches = cache::shared_copies(caches, length);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) {
      return;
    }
    throw;
  }
  cache::start_evaluation(entry->caches);
  auto near = trie.nearest(tokens);
  if (near.entry) {
    cache::share_front(
        entry->caches,
        near.entry->caches,
        whole_blocks(near.length));
  }
  entry->tokens.assign(tokens.begin(), tokens.end());
  entry->shortest = length - cache::droppable(entry->caches);
  entry->used = now;
  PrefixEntry* kept = impl_->keep(trie, std::move(entry));
  trie.touch(kept, length, now);
  impl_->drop_superseded(trie, *kept);
  impl_->evict_to(impl_->options.max_bytes);
}

int PrefixCache::tokens_to_checkpoint(int done, int total, bool trimmable) {
  if (trimmable || done >= total) {
    return std::max(0, total - done);
  }
  int step = kCheckpointStep;
  while (total / step > kMostCheckpoints) {
    step *= 2;
  }
  int next = std::min(total, (done / step + 1) * step);
  int last = whole_blocks(total - 1);
  return (last > done ? std::min(next, last) : next) - done;
}

int PrefixCache::tokens_to_checkpoint(
    const std::string& space,
    std::span<const int32_t> prompt,
    int done,
    int total,
    bool trimmable) const {
  int tokens = tokens_to_checkpoint(done, total, trimmable);
  auto found = impl_->spaces.find(space);
  if (trimmable || found == impl_->spaces.end()) {
    return tokens;
  }
  int parting = found->second.nearest(prompt).length;
  bool is_worth_it = parting >= std::max(impl_->options.shortest_hit, 1);
  return is_worth_it && parting > done ? std::min(tokens, parting - done)
                                       : tokens;
}

size_t PrefixCache::shrink(size_t bytes) {
  size_t before = impl_->memory.bytes();
  impl_->evict_to(before - std::min(before, bytes));
  size_t after = impl_->memory.bytes();
  return before - std::min(before, after);
}

void PrefixCache::clear(const std::string& space) {
  auto found = impl_->spaces.find(space);
  if (found != impl_->spaces.end()) {
    impl_->clear(found->second);
    impl_->spaces.erase(found);
  }
}

void PrefixCache::clear() {
  while (!impl_->spaces.empty()) {
    clear(std::string(impl_->spaces.begin()->first));
  }
}

void PrefixCache::tick() {
  impl_->evict_to(impl_->options.max_bytes);
}

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats stats = impl_->stats;
  stats.bytes = impl_->memory.bytes();
  return stats;
}

}  // namespace mlxx::engine
