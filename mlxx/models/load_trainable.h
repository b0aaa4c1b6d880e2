#pragma once

#include <memory>

#include "mlxx/models/model.h"

namespace mlxx::models {

// As load_model(), for who changes the weights: all are dense, in MLX's form
// and in one of the dtypes that load_model() computes in; quantized ones are
// dequantized. Nothing runs as one program with weights of its own, so that
// every pass sees what the parameters are at the time.
std::shared_ptr<Model> load_trainable_model(
    const hub::Checkpoint& checkpoint,
    const LoadOptions& options = {});

}  // namespace mlxx::models
