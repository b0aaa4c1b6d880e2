#include "mlxx/engine/prefix_memory.h"

namespace mlxx::engine {

void PrefixMemory::add(const std::vector<cache::HeldMemory>& held) {
  for (const auto& memory : held) {
    Piece& piece = pieces_[memory.handle.get()];
    piece.memory = memory;
    ++piece.entries;
  }
}

void PrefixMemory::remove(const std::vector<cache::HeldMemory>& held) {
  for (const auto& memory : held) {
    auto found = pieces_.find(memory.handle.get());
    if (found != pieces_.end() && --found->second.entries == 0) {
      pieces_.erase(found);
    }
  }
}

size_t PrefixMemory::bytes() const {
  size_t bytes = 0;
  for (const auto& [handle, piece] : pieces_) {
    bytes += is_only_here(piece) ? piece.memory.bytes : 0;
  }
  return bytes;
}

size_t PrefixMemory::bytes_of(
    const std::vector<cache::HeldMemory>& held) const {
  std::unordered_map<const void*, long> mine;
  for (const auto& memory : held) {
    ++mine[memory.handle.get()];
  }
  size_t bytes = 0;
  for (const auto& [handle, times] : mine) {
    auto found = pieces_.find(handle);
    // `held` itself holds each piece once more for each time.
    if (found != pieces_.end() && found->second.entries == times &&
        found->second.memory.handle.use_count() <= 2 * times + 1) {
      bytes += found->second.memory.bytes;
    }
  }
  return bytes;
}

}  // namespace mlxx::engine
