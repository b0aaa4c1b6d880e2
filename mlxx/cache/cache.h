#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/kernels/attention/attention.h"

namespace mlxx::cache {

using kernels::BlocksView;
using kernels::DenseView;
using kernels::kBlockTokens;
using kernels::KVView;

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
  // The mask for L new tokens: "" (none), "causal", or an array. Its width is
  // the length that append() will return, not the position.
  using Mask = kernels::AttentionMask;
  virtual Mask make_mask(int L) const = 0;
};

// One entry per layer.
using CacheList = std::vector<std::unique_ptr<KVCache>>;

}  // namespace mlxx::cache
