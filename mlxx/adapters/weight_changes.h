#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "mlxx/hub/checkpoint.h"

namespace mlxx::adapters {

// The changes that an adapter means, by a checkpoint's own tensors.
class WeightChanges {
 public:
  // A dense weight in float32 -> what it becomes.
  using Change = std::function<mx::array(const mx::array& weight)>;

  // Reads and validates the whole of it. Errors: as fuse_adapter() says.
  WeightChanges(
      const hub::Checkpoint& checkpoint,
      const std::filesystem::path& adapter);

  // By the tensor's name.
  const std::map<std::string, Change>& changes() const {
    return changes_;
  }

 private:
  std::map<std::string, Change> changes_;
};

}  // namespace mlxx::adapters
