#include "mlxx/engine/prefix_disk.h"

#include <fmt/format.h>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/sha256.h"
#include "mlxx/cache/shared_copies.h"
#include "mlxx/engine/prefix_pieces.h"

namespace mlxx::engine {
namespace {

using cache::kBlockTokens;

// Of names, of how pieces are made, and of what the kernels write.
constexpr int kFormat = 1;
constexpr const char* kPrefix = "prefix";
constexpr size_t kHashDigits = 40;

std::string hash_of(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text))).substr(0, kHashDigits);
}

std::string next_hash(const std::string& hash, std::span<const int32_t> block) {
  Sha256 sum;
  sum.update(std::as_bytes(std::span(hash)));
  sum.update(std::as_bytes(block));
  return sum.hex().substr(0, kHashDigits);
}

std::string
block_name(const std::string& key, int tokens, const std::string& hash) {
  return fmt::format("{}/{:08}-{}.kv.safetensors", key, tokens, hash);
}

std::string
state_name(const std::string& key, int tokens, const std::string& hash) {
  return fmt::format("{}/{:08}-{}.state.safetensors", key, tokens, hash);
}

}  // namespace

void PrefixDisk::open(
    const std::string& space,
    const std::string& identity,
    std::function<cache::CacheList()> make_cache) {
  cache::CacheList caches = make_cache();
  Space opened;
  try {
    opened.key = hash_of(fmt::format(
        "mlxx prompt cache {}, mlxx {}, MLX {}\n{}\n{}",
        kFormat,
        MLXX_VERSION,
        mx::version(),
        layout_of(caches),
        identity));
  } catch (const Error& error) {
    log_warning(
        "[prompt cache] states of '{}' stay in memory: {}",
        space,
        error.what());
    return;
  }
  opened.make_cache = std::move(make_cache);
  opened.has_blocks = has_blocks(caches);
  opened.has_states = has_states(caches);
  spaces_[space] = std::move(opened);
}

void PrefixDisk::close(const std::string& space) {
  spaces_.erase(space);
}

bool PrefixDisk::save(
    const std::string& space,
    PrefixEntry& entry,
    Clock::time_point until) {
  auto found = spaces_.find(space);
  if (entry.is_stored || found == spaces_.end()) {
    return true;
  }
  const Space& to = found->second;
  std::span<const int32_t> tokens = entry.tokens;
  if (entry.hash.empty()) {
    entry.hash = to.key;
  }
  auto write = [&](const std::string& name, auto make_piece) {
    if (store_.has(name)) {
      return true;
    }
    if (Clock::now() > until || !is_computed(entry.caches)) {
      return false;
    }
    StoredPiece piece = make_piece();
    piece.notes[kPrefix] = entry.hash;
    return store_.write(name, std::move(piece));
  };
  int blocks = entry.size() / kBlockTokens;
  while (entry.stored_blocks < blocks) {
    int from = entry.stored_blocks * kBlockTokens;
    std::string before = entry.hash;
    entry.hash = next_hash(before, tokens.subspan(from, kBlockTokens));
    std::string name = block_name(to.key, from + kBlockTokens, entry.hash);
    if (to.has_blocks && !write(name, [&] {
          return block_piece(entry.caches, entry.stored_blocks);
        })) {
      entry.hash = before;
      return false;
    }
    ++entry.stored_blocks;
  }
  // The states of the last boundary, if there are any.
  int end = blocks * kBlockTokens;
  if (to.has_states && end > 0 && end >= entry.shortest &&
      !write(state_name(to.key, end, entry.hash), [&] {
        return state_piece(cache::shared_copies(entry.caches, end));
      })) {
    return false;
  }
  entry.is_stored = true;
  return true;
}

std::vector<PrefixDisk::Place> PrefixDisk::places(
    const Space& space,
    std::span<const int32_t> tokens) const {
  std::vector<Place> found;
  std::string hash = space.key;
  for (size_t end = kBlockTokens; end <= tokens.size(); end += kBlockTokens) {
    hash = next_hash(hash, tokens.subspan(end - kBlockTokens, kBlockTokens));
    int length = static_cast<int>(end);
    Place place{hash, {}, {}};
    if (space.has_blocks) {
      place.block = block_name(space.key, length, hash);
      if (!store_.is_written(place.block)) {
        break;
      }
    }
    std::string state = state_name(space.key, length, hash);
    if (space.has_states && store_.is_written(state)) {
      place.state = state;
    }
    found.push_back(std::move(place));
  }
  return found;
}

std::optional<LoadedPiece> PrefixDisk::read(
    const std::string& name,
    const std::string& hash) {
  auto piece = store_.read(name);
  if (piece) {
    auto note = piece->notes.find(kPrefix);
    if (note == piece->notes.end() || note->second != hash) {
      store_.refuse(name, "it is of other tokens or of another model");
      return std::nullopt;
    }
  }
  return piece;
}

std::optional<cache::CacheList> PrefixDisk::restore(
    const Space& space,
    std::span<const LoadedPiece> blocks,
    const Place& end,
    int tokens) {
  std::optional<LoadedPiece> state;
  if (space.has_states) {
    state = read(end.state, end.hash);
    if (!state) {
      return std::nullopt;
    }
  }
  try {
    cache::CacheList caches = space.make_cache();
    restore_pieces(caches, blocks, state ? &*state : nullptr, tokens);
    cache::start_evaluation(caches);
    return caches;
  } catch (const std::exception& error) {
    store_.refuse(space.has_states ? end.state : end.block, error.what());
    return std::nullopt;
  }
}

std::optional<PrefixDisk::Found> PrefixDisk::load(
    const std::string& space,
    std::span<const int32_t> tokens,
    int more_than) {
  auto from = spaces_.find(space);
  if (from == spaces_.end()) {
    return std::nullopt;
  }
  std::vector<Place> there = places(from->second, tokens);
  std::vector<LoadedPiece> blocks;
  while (!there.empty()) {
    const Place& end = there.back();
    int length = static_cast<int>(there.size()) * kBlockTokens;
    if (length <= more_than) {
      break;
    }
    if (from->second.has_states && end.state.empty()) {
      there.pop_back();
      continue;
    }
    while (from->second.has_blocks && blocks.size() < there.size()) {
      const Place& next = there[blocks.size()];
      auto block = read(next.block, next.hash);
      if (!block) {
        there.resize(blocks.size());
        break;
      }
      blocks.push_back(std::move(*block));
    }
    if (static_cast<int>(there.size()) * kBlockTokens < length) {
      continue;
    }
    size_t used = from->second.has_blocks ? there.size() : 0;
    auto caches =
        restore(from->second, std::span(blocks).first(used), end, length);
    if (caches) {
      for (const Place& place : there) {
        store_.touch(place.block);
      }
      store_.touch(end.state);
      return Found{std::move(*caches), length};
    }
    there.pop_back();
    blocks.resize(std::min(blocks.size(), there.size()));
  }
  return std::nullopt;
}

}  // namespace mlxx::engine
