#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "mlxx/hub/rewritten_checkpoint.h"
#include "mlxx/models/model.h"

namespace mlxx::models {

// What a model file says of itself, one constant per file.
struct ModelInfo {
  std::string_view model_type;                // of config.json
  std::span<const std::string_view> aliases;  // other model_types it serves
  // An empty model of the shapes that the checkpoint's config asks for.
  std::unique_ptr<Model> (*make)(const hub::Checkpoint& checkpoint);
  // A config.json small enough for tests, as a JSON text.
  std::string_view tiny_config;
  std::string_view notes;  // what it is, for a list of families
  // What is particular to it: "qk-norm, sliding windows".
  std::string_view features = {};
  // Published checkpoints that are expected to work, as "owner/name".
  std::span<const std::string_view> checkpoints = {};
  // Gives the tensors of a checkpoint the names and forms of the model (what
  // mlx-lm calls sanitize); absent if they have them. Must leave a checkpoint
  // alone that MLX's converter wrote, which has them already.
  void (*rewrite)(hub::TensorRewrite& tensors) = nullptr;
};

// All models of this build, in the order of mlxx_add_models().
std::span<const ModelInfo* const> all_models();

// By model_type or alias. unsupported, with the list of what is known.
const ModelInfo& find_model(const std::string& model_type);

// The checkpoint as the model wants it, which borrows the given one; null if
// the model takes tensors as they are.
std::unique_ptr<const hub::Checkpoint> rewrite_checkpoint(
    const ModelInfo& info,
    const hub::Checkpoint& checkpoint);

}  // namespace mlxx::models
