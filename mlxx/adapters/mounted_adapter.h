#pragma once

#include <string>
#include <unordered_map>

#include "mlxx/adapters/embedding_change.h"
#include "mlxx/adapters/expert_change.h"
#include "mlxx/adapters/linear_change.h"
#include "mlxx/adapters/mounted.h"

// For the sources that mount adapters and compute with them.
namespace mlxx::adapters {

class MountedAdapter {
 public:
  AdapterInfo info;
  uint64_t content = 0;  // a hash of all numbers
  // By the layer's weight.
  std::unordered_map<const Parameter*, LinearChange> linear;
  std::unordered_map<const Parameter*, ExpertChange> experts;
  std::unordered_map<const Parameter*, EmbeddingChange> embeddings;
};

}  // namespace mlxx::adapters
