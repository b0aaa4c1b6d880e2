#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::cache {

// What attention reads. Lengths are host integers, so that no lazy graph can
// grow in bookkeeping. More forms (ring, quantized, latent...) join the
// variant as their caches are built.
struct DenseView {
  mx::array keys;    // [B, K, S, D]
  mx::array values;  // [B, K, S, D]
};

// One pool of fixed-size blocks shared by many rows. Block b of row r is
// pool index table[r][b]; row r holds lengths[r] tokens.
struct BlocksView {
  mx::array keys;    // [blocks, K, kBlockTokens, D]
  mx::array values;  // [blocks, K, kBlockTokens, D]
  std::vector<std::vector<int>> table;
  std::vector<int> lengths;
};

using KVView = std::variant<DenseView, BlocksView>;

inline constexpr int kBlockTokens = 64;

// Decoding state of one attention layer. Not thread-safe; the owner is one
// sequence (or one batch).
class KVCache {
 public:
  virtual ~KVCache() = default;

  // Takes [B, K, L, D] for L new tokens and returns everything attention may
  // look at, those included.
  virtual KVView append(const mx::array& keys, const mx::array& values) = 0;

  // Tokens seen so far, which is the rope position of the next one.
  virtual int offset() const = 0;
  // Drops the newest n tokens; returns how many could be dropped.
  virtual int trim(int n) = 0;
  virtual bool is_trimmable() const = 0;
  // Bytes held, spare room included.
  virtual size_t nbytes() const = 0;
  // Arrays to evaluate so that no graph hangs on this cache.
  virtual std::vector<mx::array> state() const = 0;
  // The mask for L new tokens: "" (none), "causal", or an array.
  struct Mask {
    std::string mode;
    std::optional<mx::array> array;
  };
  virtual Mask make_mask(int L) const = 0;
};

// One entry per layer.
using CacheList = std::vector<std::unique_ptr<KVCache>>;

}  // namespace mlxx::cache
