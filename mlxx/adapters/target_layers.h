#pragma once

#include <string>
#include <vector>

#include "mlxx/adapters/adaptable_modules.h"
#include "mlxx/adapters/adapter_file.h"
#include "mlxx/models/model.h"

namespace mlxx::adapters {

// A change of one layer of a loaded model.
struct TargetedChange {
  const Parameter* weight;
  LayerKind kind;
  LowRank change;
};

// The layers of a model that an adapter's modules mean, by their checkpoint
// names; a matrix that models take apart when they are loaded (query, key and
// value in one, gate and up in one) becomes a change of each part. Whether a
// change is of an embedding or of a linear layer is the model's to say. Errors
// as MountedAdapters::mount says.
std::vector<TargetedChange> find_targets(
    const models::Model& model,
    const AdapterFile& file);

}  // namespace mlxx::adapters
