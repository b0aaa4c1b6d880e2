#include "mlxx/engine/prefix_cache.h"

#include <algorithm>
#include <map>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/cache/shared_copies.h"
#include "mlxx/engine/prefix_disk.h"
#include "mlxx/engine/prefix_memory.h"
#include "mlxx/engine/prefix_trie.h"

namespace mlxx::engine {
namespace {

using cache::kBlockTokens;

constexpr int kCheckpointStep = 512;
constexpr int kMostCheckpoints = 8;
// To count is cheap beside a request, not beside a step.
constexpr auto kCountInterval = std::chrono::milliseconds(100);

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
  std::optional<PrefixDisk> disk;
  bool has_unsaved = false;
  std::chrono::steady_clock::time_point next_count;

  explicit Impl(const PrefixCacheOptions& from) : options(from) {
    if (!options.folder.empty()) {
      disk.emplace(PrefixStoreOptions{
          .folder = options.folder,
          .max_bytes = options.max_disk_bytes});
    }
  }

  PrefixEntry* keep(PrefixTrie& trie, std::unique_ptr<PrefixEntry> entry);
  std::unique_ptr<PrefixEntry> drop(PrefixTrie& trie, PrefixEntry* entry);
  void drop_superseded(PrefixTrie& trie, const PrefixEntry& entry);
  bool evict_one();
  void evict(PrefixTrie& trie, PrefixEntry* entry);
  void evict_to(size_t bytes);
  void clear(PrefixTrie& trie);

  PrefixEntry* add(
      PrefixTrie& trie,
      std::span<const int32_t> tokens,
      cache::CacheList caches);
  PrefixTrie::Match find_on_disk(
      const std::string& space,
      std::span<const int32_t> tokens,
      PrefixTrie::Match in_memory);
  bool save(const std::string& space, PrefixDisk::Clock::time_point until);
  void hand_over(const std::string& space);
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
    if (other->shortest >= entry.shortest) {
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
  struct Candidate {
    uint64_t used;
    PrefixTrie* trie;
    PrefixEntry* entry;
  };
  std::vector<Candidate> candidates;
  for (auto& [space, trie] : spaces) {
    for (PrefixEntry* entry : trie.entries()) {
      candidates.push_back({entry->used, &trie, entry});
    }
  }
  std::ranges::sort(candidates, {}, &Candidate::used);
  for (const Candidate& candidate : candidates) {
    // What rows hold too is not freed by dropping it here.
    if (memory.bytes_of(cache::memory(candidate.entry->caches)) > 0) {
      evict(*candidate.trie, candidate.entry);
      return true;
    }
  }
  return false;
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

// Keeps the caches, which hold these tokens and are nobody else's.
PrefixEntry* PrefixCache::Impl::add(
    PrefixTrie& trie,
    std::span<const int32_t> tokens,
    cache::CacheList caches) {
  auto entry = std::make_unique<PrefixEntry>();
  entry->caches = std::move(caches);
  cache::start_evaluation(entry->caches);
  auto near = trie.nearest(tokens);
  if (near.entry) {
    cache::share_front(
        entry->caches,
        near.entry->caches,
        whole_blocks(near.length));
  }
  int length = static_cast<int>(tokens.size());
  entry->tokens.assign(tokens.begin(), tokens.end());
  entry->shortest = length - cache::droppable(entry->caches);
  entry->used = ++clock;
  PrefixEntry* kept = keep(trie, std::move(entry));
  trie.touch(kept, length, clock);
  drop_superseded(trie, *kept);
  has_unsaved = true;
  return kept;
}

// What is found there is kept in memory again.
PrefixTrie::Match PrefixCache::Impl::find_on_disk(
    const std::string& space,
    std::span<const int32_t> tokens,
    PrefixTrie::Match in_memory) {
  if (!disk || !disk->is_open(space) || options.max_bytes == 0 ||
      whole_blocks(static_cast<int>(tokens.size())) <= in_memory.length) {
    return in_memory;
  }
  auto found = disk->load(space, tokens, in_memory.length);
  if (!found) {
    return in_memory;
  }
  ++stats.disk_hits;
  stats.disk_tokens_found += static_cast<uint64_t>(found->tokens);
  PrefixEntry* entry =
      add(spaces[space],
          tokens.first(static_cast<size_t>(found->tokens)),
          std::move(found->caches));
  return {entry, entry->size()};
}

// True if nothing is left to be handed over.
bool PrefixCache::Impl::save(
    const std::string& space,
    PrefixDisk::Clock::time_point until) {
  auto found = spaces.find(space);
  if (found == spaces.end()) {
    return true;
  }
  for (PrefixEntry* entry : found->second.entries()) {
    try {
      if (!disk->save(space, *entry, until)) {
        return false;
      }
    } catch (const std::exception& error) {
      entry->is_stored = true;
      log_warning("[prompt cache] a state stays in memory: {}", error.what());
    }
  }
  return true;
}

// All of it, to the thread that writes; waits only where too much waits there.
void PrefixCache::Impl::hand_over(const std::string& space) {
  if (!disk) {
    return;
  }
  auto found = spaces.find(space);
  if (found != spaces.end()) {
    for (PrefixEntry* entry : found->second.entries()) {
      try {
        for (const auto& layer : entry->caches) {
          mx::eval(layer->state());
        }
      } catch (const std::exception& error) {
        // A state whose computation failed is of no use, here or there.
        entry->is_stored = true;
        log_warning("[prompt cache] a state is lost: {}", error.what());
      }
    }
  }
  while (!save(space, PrefixDisk::Clock::time_point::max())) {
    disk->store().flush();
  }
}

PrefixCache::PrefixCache(const PrefixCacheOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

PrefixCache::~PrefixCache() {
  try {
    flush();
  } catch (const std::exception& error) {
    log_warning("[prompt cache] not all is on disk: {}", error.what());
  }
}

void PrefixCache::keep_on_disk(
    const std::string& space,
    const std::string& identity,
    std::function<cache::CacheList()> make_cache) {
  if (impl_->disk) {
    impl_->disk->open(space, identity, std::move(make_cache));
  }
}

void PrefixCache::close(const std::string& space) {
  impl_->hand_over(space);
  clear(space);
  if (impl_->disk) {
    impl_->disk->close(space);
  }
}

std::optional<PrefixCache::Hit> PrefixCache::find(
    const std::string& space,
    std::span<const int32_t> prompt) {
  ++impl_->stats.lookups;
  if (prompt.empty()) {
    return std::nullopt;
  }
  // The last token is always computed: its logits are what comes next.
  auto tokens = prompt.first(prompt.size() - 1);
  PrefixTrie::Match match;
  auto found = impl_->spaces.find(space);
  if (found != impl_->spaces.end()) {
    match = found->second.find(tokens);
  }
  auto [entry, length] = impl_->find_on_disk(space, tokens, match);
  if (!entry || length < impl_->options.shortest_hit) {
    return std::nullopt;
  }
  Hit hit{cache::shared_copies(entry->caches, length), length};
  impl_->spaces[space].touch(entry, length, ++impl_->clock);
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
  auto known = trie.find(tokens);
  if (known.length == length) {
    trie.touch(known.entry, length, ++impl_->clock);
    return;
  }
  cache::CacheList copies;
  try {
    copies = cache::shared_copies(caches, length);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) {
      return;
    }
    throw;
  }
  PrefixEntry* kept = impl_->add(trie, tokens, std::move(copies));
  // Nothing else could stay beside it.
  if (impl_->memory.bytes_of(cache::memory(kept->caches)) >
      impl_->options.max_bytes) {
    impl_->drop(trie, kept);
    ++impl_->stats.evictions;
  }
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
  if (impl_->disk && impl_->disk->is_open(space)) {
    parting = whole_blocks(parting);
  }
  bool is_worth_it = parting >= std::max(impl_->options.shortest_hit, 1);
  return is_worth_it && parting > done ? std::min(tokens, parting - done)
                                       : tokens;
}

size_t PrefixCache::shrink(size_t bytes) {
  size_t before = impl_->memory.bytes();
  impl_->evict_to(
      std::min(impl_->options.max_bytes, before - std::min(before, bytes)));
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

void PrefixCache::clear_disk() {
  if (impl_->disk) {
    impl_->disk->store().clear();
  }
}

void PrefixCache::tick(std::chrono::microseconds budget) {
  auto now = std::chrono::steady_clock::now();
  if (now >= impl_->next_count) {
    impl_->evict_to(impl_->options.max_bytes);
    impl_->next_count = now + kCountInterval;
  }
  if (!impl_->disk || !impl_->has_unsaved) {
    return;
  }
  auto until = PrefixDisk::Clock::now() + budget;
  for (const auto& [space, trie] : impl_->spaces) {
    if (!impl_->save(space, until)) {
      return;
    }
  }
  impl_->has_unsaved = false;
}

void PrefixCache::flush() {
  for (const auto& [space, trie] : impl_->spaces) {
    impl_->hand_over(space);
  }
  if (impl_->disk) {
    impl_->disk->store().flush();
  }
}

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats stats = impl_->stats;
  stats.bytes = impl_->memory.bytes();
  if (impl_->disk) {
    PrefixStoreStats disk = impl_->disk->store().stats();
    stats.disk_bytes = disk.bytes;
    stats.disk_files = disk.files;
    stats.disk_queued = disk.queued;
    stats.disk_written = disk.written;
    stats.disk_evicted = disk.evicted;
    stats.disk_refused = disk.refused;
    stats.disk_problem = disk.problem;
  }
  return stats;
}

}  // namespace mlxx::engine
