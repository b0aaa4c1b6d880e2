#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

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
  std::string_view notes;
};

// All models of this build, in the order of mlxx_add_models().
std::span<const ModelInfo* const> all_models();

// By model_type or alias. unsupported, with the list of what is known.
const ModelInfo& find_model(const std::string& model_type);

}  // namespace mlxx::models
