#include "mlxx/train/save_trained.h"

#include <nlohmann/json.hpp>

#include "mlxx/adapters/write_adapter.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/paths.h"
#include "mlxx/core/safetensors_writer.h"

namespace mlxx::train {

void save_adapters(
    const LoraAdapters& adapters,
    const std::filesystem::path& folder,
    AdapterLayout layout,
    const std::string& base_model) {
  adapters::AdapterContent content;
  content.modules = adapters.low_rank();
  content.dropout = adapters.options().dropout;
  int layers = adapters.plan().num_layers;
  content.num_layers = layers < 1 ? -1 : layers;
  content.keys = adapters.plan().keys;
  content.rank_stabilized = adapters.options().rank_stabilized;
  content.base_model = base_model;
  if (layout == AdapterLayout::peft) {
    adapters::write_peft_adapter(folder, content);
  } else {
    adapters::write_mlx_adapter(folder, content);
  }
}

void save_full(
    const FullParameters& parameters,
    const models::Model& model,
    const std::filesystem::path& folder,
    const std::string& base_model) {
  for (const auto& module : adapters::adaptable_modules(model)) {
    if (module.weights.size() > 1) {
      fail(
          ErrorKind::unsupported,
          "full fine-tuning",
          "'{}' is one matrix in files and several here",
          module.name);
    }
  }
  SafetensorsArrays arrays;
  for (size_t i = 0; i < parameters.names().size(); ++i) {
    arrays.emplace_back(parameters.names()[i], parameters.values()[i]);
  }
  Json config = {
      {"fine_tune_type", "full"},
      {"lora_parameters", nullptr},
      {"model", base_model},
      {"num_layers",
       parameters.num_layers() < 1 ? -1 : parameters.num_layers()}};
  make_folder(folder);
  write_safetensors(
      folder / "adapters.safetensors",
      arrays,
      {{"format", "mlx"}});
  write_file_atomically(folder / "adapter_config.json", config.dump(4) + "\n");
}

}  // namespace mlxx::train
