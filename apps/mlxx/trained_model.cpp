#include "apps/mlxx/trained_model.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/atomic_file.h"
#include "mlxx/base/error.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/core/safetensors_writer.h"
#include "mlxx/train/lora.h"

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
    fs::create_directories(folder);
    SafetensorsArrays arrays;
    for (size_t i = 0; i < adapters_.names().size(); ++i) {
      arrays.emplace_back(adapters_.names()[i], adapters_.values()[i]);
    }
    const auto& lora = adapters_.options();
    const Json config = {
        {"fine_tune_type", lora.dora ? "dora" : "lora"},
        {"model", options_.model},
        {"num_layers", adapters_.plan().num_layers},
        {"lora_parameters",
         {{"rank", lora.rank},
          {"scale", adapters_.plan().modules.front().scale},
          {"dropout", lora.dropout},
          {"keys", adapters_.plan().keys}}}};
    AtomicFile file(folder / "adapter_config.json");
    file.write(std::span<const char>(config.dump(2) + "\n"));
    file.commit();
    write_safetensors(folder / "adapters.safetensors", arrays);
  }

 private:
  const TrainCommandOptions& options_;
  train::LoraAdapters adapters_;
};

}  // namespace

std::unique_ptr<TrainedModel> make_trained_model(
    const TrainCommandOptions& options,
    const generate::Pipeline& pipeline) {
  if (options.is_full()) {
    fail(
        ErrorKind::unsupported,
        "--full",
        "training all weights is not implemented yet");
  }
  return std::make_unique<TrainedAdapters>(options, pipeline);
}

}  // namespace mlxx::apps
