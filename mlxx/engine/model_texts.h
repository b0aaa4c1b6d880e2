#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/engine/model_text.h"

namespace mlxx::engine {

// One name that requests may use.
struct ListedModel {
  std::string name;
  int64_t created = 0;  // Unix time of its files
  bool loaded = false;  // its weights are in memory now
};

// The models that requests may name, as the threads of the server see them.
// Thread-safe; needs no engine and loads no weights.
class ModelTexts {
 public:
  virtual ~ModelTexts() = default;

  // In the order in which they were given.
  virtual std::vector<ListedModel> list() const = 0;

  // The texts of a model; "" is the first one. Read from its files the first
  // time. not_found for what is not in the list, whatever it names: no path
  // and no repository is looked up. Errors of its files: bad_file,
  // unsupported.
  virtual std::shared_ptr<const ModelText> text(const std::string& name) = 0;
};

}  // namespace mlxx::engine
