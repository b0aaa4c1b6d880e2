#pragma once

#include <functional>
#include <string>

#include "mlxx/models/model.h"

namespace mlxx::models {

// What a checkpoint's weights go into.
struct WeightTarget {
  std::string model_type;  // for errors
  // Calls the visitor for each parameter; called twice.
  std::function<void(const ParameterVisitor&)> visit;
  // Whether an entry that is no parameter may be left out.
  std::function<bool(const std::string&)> skips;
  // All weights become dense and stay in MLX's form.
  bool dense = false;
};

// Fills every parameter of `target` from the checkpoint, in the dtypes and
// forms that load_model() describes, and with its errors. For what is no
// language model, such as an encoder. `options.kernels` is not looked at.
void load_weights(
    const hub::Checkpoint& checkpoint,
    const WeightTarget& target,
    const kernels::Selection& selection,
    const LoadOptions& options);

}  // namespace mlxx::models
