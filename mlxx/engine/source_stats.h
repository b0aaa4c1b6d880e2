#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What models and kept states take; knows nothing of arrays.
namespace mlxx::engine {

struct PrefixCacheStats {
  uint64_t lookups = 0;
  uint64_t hits = 0;
  uint64_t tokens_found = 0;
  uint64_t evictions = 0;
  size_t bytes = 0;  // of what only the cache holds
  size_t entries = 0;
  // Of lookups and tokens_found, what came from disk.
  uint64_t disk_hits = 0;
  uint64_t disk_tokens_found = 0;
  size_t disk_bytes = 0;
  size_t disk_files = 0;
  size_t disk_queued = 0;     // pieces that wait to be written
  uint64_t disk_written = 0;  // files
  uint64_t disk_evicted = 0;
  uint64_t disk_refused = 0;  // damaged or foreign
  std::string disk_problem;   // why nothing is written any more
};

// Of a ModelSource.
struct SourceStats {
  PrefixCacheStats prefixes;
  size_t memory_budget = 0;  // 0: no limit
  size_t active_memory = 0;  // that arrays hold, all together
  size_t pooled_memory = 0;  // freed, kept for new arrays
  size_t weights = 0;        // of loaded models
  size_t rows = 0;           // promised to requests that run
  std::vector<std::string> loaded_models = {};  // their names
  uint64_t loads = 0;
  uint64_t unloads = 0;
};

}  // namespace mlxx::engine
