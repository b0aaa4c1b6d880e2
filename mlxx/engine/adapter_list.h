#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mlxx::engine {

struct AdapterEntry {
  std::string model;
  std::string name;
  std::string folder;
  std::string format;  // "mlx-lm" or "peft"; empty: its model is not loaded
  bool dora = false;
  int rank = 0;     // the highest
  int modules = 0;  // that it changes
  size_t bytes = 0;
};

// LoRA and DoRA adapters of the models of a source, which requests name. They
// come back when a model that was unloaded is loaded again. Engine's thread.
class AdapterList {
 public:
  virtual ~AdapterList() = default;

  // `folder`: a name under the folder that the operator gave for adapters; a
  // request chooses no other files. Loads the model. Errors: not_found;
  // invalid_request for a name that is taken or can't be one; bad_file and
  // unsupported as the files give them; out_of_memory.
  virtual AdapterEntry mount_adapter(
      const std::string& model,
      const std::string& name,
      const std::string& folder) = 0;
  // Rows that use it go on. not_found.
  virtual void unmount_adapter(
      const std::string& model,
      const std::string& name) = 0;
  virtual std::vector<AdapterEntry> list_adapters() const = 0;
};

}  // namespace mlxx::engine
