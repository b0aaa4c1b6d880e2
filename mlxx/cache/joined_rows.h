#pragma once

#include <span>

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// Caches of several sequences, of one row each and of whatever lengths, as one
// batch for one token more of every row: layers see [B, 1, E] once, and each
// row's keys, values and states stay its own. The rows must outlive it.
class JoinedRows {
 public:
  // internal if the rows are not of one model and options.
  explicit JoinedRows(std::span<CacheList* const> rows);
  ~JoinedRows();
  JoinedRows(const JoinedRows&) = delete;
  JoinedRows& operator=(const JoinedRows&) = delete;

  // For one call of the model, with L = 1.
  CacheList& caches() {
    return caches_;
  }
  // Gives the rows what that call left behind.
  void give_rows();

 private:
  struct States;
  std::unique_ptr<LayerCache> join(const std::vector<LayerCache*>& layer);

  CacheList caches_;
  std::vector<States> states_;
};

}  // namespace mlxx::cache
