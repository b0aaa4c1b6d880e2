#include "apps/mlxx/model_adapter.h"

#include <filesystem>
#include <vector>

#include <CLI/CLI.hpp>

#include "mlxx/models/fused_decoder.h"

namespace mlxx::apps {
namespace {

constexpr const char* kName = "adapter";

}  // namespace

CLI::Option* add_adapter_option(CLI::App& verb, std::string& folder) {
  return verb
      .add_option(
          "--adapter-path",
          folder,
          "Folder of a LoRA or DoRA adapter to compute with, of mlx-lm or PEFT")
      ->type_name("FOLDER");
}

ModelAdapter::ModelAdapter(
    std::shared_ptr<const models::Model> model,
    const std::string& folder,
    const kernels::Selection& selection)
    : mounted_(model, selection) {
  if (!folder.empty()) {
    mounted_.mount(kName, std::filesystem::path(folder));
    stack_ = mounted_.find(kName);
    per_layer_ = !stack_->fits_program() ||
        !models::FusedDecoder::made(model->make_cache({}));
  }
}

std::unique_ptr<nn::RowAdapters> ModelAdapter::rows(int count) const {
  if (!stack_) {
    return nullptr;
  }
  return adapters::adapters_of_rows(
      std::vector(static_cast<size_t>(count), stack_));
}

}  // namespace mlxx::apps
