#include "mlxx/models/registry.h"

#include <algorithm>

#include "mlxx/base/error.h"

namespace mlxx::models {

const ModelInfo& find_model(const std::string& model_type) {
  std::vector<std::string_view> known;
  for (const ModelInfo* info : all_models()) {
    known.push_back(info->model_type);
    known.insert(known.end(), info->aliases.begin(), info->aliases.end());
    if (info->model_type == model_type ||
        std::ranges::find(info->aliases, model_type) != info->aliases.end()) {
      return *info;
    }
  }
  fail(
      ErrorKind::unsupported,
      "config.json",
      "model_type '{}' is not known; known are {}",
      model_type,
      fmt::join(known, ", "));
}

std::unique_ptr<const hub::Checkpoint> rewrite_checkpoint(
    const ModelInfo& info,
    const hub::Checkpoint& checkpoint) {
  if (!info.rewrite) {
    return nullptr;
  }
  hub::TensorRewrite tensors(checkpoint);
  info.rewrite(tensors);
  return std::move(tensors).finish();
}

}  // namespace mlxx::models
