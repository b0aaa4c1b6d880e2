#pragma once

#include <memory>
#include <optional>
#include <string>

#include "mlxx/adapters/mounted.h"
#include "mlxx/kernels/select.h"
#include "mlxx/models/model.h"
#include "mlxx/nn/row_adapters.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mlxx::apps {

// Adds --adapter-path.
CLI::Option* add_adapter_option(CLI::App& verb, std::string& folder);

// What a verb's model is to be computed with, if anything.
class ModelAdapter {
 public:
  // An empty `folder`: nothing. Errors: those of MountedAdapters::mount().
  ModelAdapter(
      std::shared_ptr<const models::Model> model,
      const std::string& folder,
      const kernels::Selection& selection);

  bool is_mounted() const {
    return stack_ != nullptr;
  }
  // Whether it needs caches of CacheOptions::per_layer.
  bool per_layer() const {
    return per_layer_;
  }
  // For a pass of so many rows; null without an adapter.
  std::unique_ptr<nn::RowAdapters> rows(int count) const;

 private:
  adapters::MountedAdapters mounted_;
  std::shared_ptr<const adapters::AdapterStack> stack_;
  bool per_layer_ = false;
};

}  // namespace mlxx::apps
