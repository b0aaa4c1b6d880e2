#include "mlxx/core/compile.h"
#include "mlxx/models/load_trainable.h"
#include "mlxx/models/load_weights.h"
#include "mlxx/models/registry.h"

namespace mlxx::models {
namespace {

std::shared_ptr<Model> load(
    const hub::Checkpoint& checkpoint,
    const LoadOptions& options,
    bool dense) {
  apply_compile_mode();
  kernels::Selection selection =
      options.kernels ? *options.kernels : kernels::select_from_environment();
  selection.trains = selection.trains || dense;
  JsonView config(checkpoint.config(), "config.json");
  const ModelInfo& info = find_model(config.string("model_type"));
  auto rewritten = rewrite_checkpoint(info, checkpoint);
  const hub::Checkpoint& tensors = rewritten ? *rewritten : checkpoint;
  std::shared_ptr<Model> model = info.make(tensors);

  load_weights(
      tensors,
      {model->summary().model_type,
       [&](const ParameterVisitor& visitor) { model->visit(visitor); },
       [&](const std::string& name) { return model->skips(name); },
       dense},
      selection,
      options);
  model->use(selection);
  return model;
}

}  // namespace

std::shared_ptr<const Model> load_model(
    const hub::Checkpoint& checkpoint,
    const LoadOptions& options) {
  return load(checkpoint, options, false);
}

std::shared_ptr<Model> load_trainable_model(
    const hub::Checkpoint& checkpoint,
    const LoadOptions& options) {
  return load(checkpoint, options, true);
}

std::shared_ptr<const Model> load_model(
    const hub::Checkpoint& checkpoint,
    const Progress& progress) {
  LoadOptions options;
  options.progress = progress;
  return load_model(checkpoint, options);
}

}  // namespace mlxx::models
