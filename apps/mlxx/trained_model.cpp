#include "apps/mlxx/trained_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "mlxx/base/error.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/train/full_parameters.h"
#include "mlxx/train/save_trained.h"

namespace mlxx::apps {

namespace fs = std::filesystem;

namespace {

// Replaces the initial values with those of a file.
void load_values(train::Trainable& trainable, const std::string& path) {
  const SafetensorsFile file(path);
  std::vector<mx::array> values;
  for (size_t i = 0; i < trainable.names().size(); ++i) {
    const auto& name = trainable.names()[i];
    const auto& now = trainable.values()[i];
    const auto* entry = file.find(name);
    if (!entry) {
      fail(ErrorKind::bad_file, path, "has no \"{}\"", name);
    }
    const mx::array value = mx::astype(file.load(*entry), now.dtype());
    if (value.shape() != now.shape()) {
      fail(ErrorKind::bad_file, path, "has \"{}\" in another shape", name);
    }
    values.push_back(value);
  }
  if (file.entries().size() != values.size()) {
    fail(
        ErrorKind::bad_file,
        path,
        "has {} arrays, the adapters {}",
        file.entries().size(),
        values.size());
  }
  mx::eval(values);
  trainable.set_values(std::move(values));
}

class TrainedAdapters : public TrainedModel {
 public:
  TrainedAdapters(
      const TrainCommandOptions& options,
      const generate::Pipeline& pipeline)
      : options_(options), adapters_(pipeline.model, options.lora) {
    if (!options.resume_adapter_file.empty()) {
      load_values(adapters_, options.resume_adapter_file);
    }
  }

  train::Trainable& trainable() override {
    return adapters_;
  }

  std::string description() const override {
    return fmt::format(
        "{} adapters of rank {} in {} layers",
        options_.lora.dora ? "DoRA" : "LoRA",
        options_.lora.rank,
        adapters_.plan().num_layers);
  }

  void save(const fs::path& folder) const override {
    train::save_adapters(
        adapters_,
        folder,
        train::AdapterLayout::mlx,
        options_.model);
    if (options_.peft) {
      train::save_adapters(
          adapters_,
          folder / "peft",
          train::AdapterLayout::peft,
          options_.model);
    }
  }

 private:
  const TrainCommandOptions& options_;
  train::LoraAdapters adapters_;
};

train::FullOptions full_options(
    const TrainCommandOptions& options,
    const models::Model& model) {
  constexpr int kUsualLayers = 16;
  int layers = model.summary().layers;
  train::FullOptions full;
  full.num_layers = options.num_layers.value_or(std::min(kUsualLayers, layers));
  return full;
}

class TrainedWeights : public TrainedModel {
 public:
  TrainedWeights(
      const TrainCommandOptions& options,
      const generate::Pipeline& pipeline)
      : options_(options),
        model_(pipeline.trainable_model),
        weights_(model_, full_options(options, *model_)) {
    if (!options.resume_adapter_file.empty()) {
      load_values(weights_, options.resume_adapter_file);
    }
  }

  train::Trainable& trainable() override {
    return weights_;
  }

  std::string description() const override {
    return weights_.num_layers() < 1
        ? std::string("all weights of all layers")
        : fmt::format("all weights of {} layers", weights_.num_layers());
  }

  void save(const fs::path& folder) const override {
    train::save_full(weights_, *model_, folder, options_.model);
  }

 private:
  const TrainCommandOptions& options_;
  std::shared_ptr<models::Model> model_;
  train::FullParameters weights_;
};

}  // namespace

std::unique_ptr<TrainedModel> make_trained_model(
    const TrainCommandOptions& options,
    const generate::Pipeline& pipeline) {
  if (options.is_full()) {
    return std::make_unique<TrainedWeights>(options, pipeline);
  }
  return std::make_unique<TrainedAdapters>(options, pipeline);
}

}  // namespace mlxx::apps
