#pragma once

#include <map>
#include <optional>
#include <string>

#include "mlxx/base/json.h"
#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// What config.json says of packed weights, in MLX's terms.
class QuantizationConfig {
 public:
  // Reads "quantization", else "quantization_config" if it has MLX's form,
  // which has no "quant_method" (see foreign_quantization.h). bad_file or
  // unsupported for impossible bits, group sizes or modes.
  static QuantizationConfig read(const Json& config);

  // Whether the config says anything.
  bool is_present() const {
    return default_.has_value();
  }
  // For a module such as "model.layers.0.mlp.down_proj": its own entry, else
  // the one for all (is_default); absent where its entry is false or there is
  // none.
  std::optional<Quantization> of(const std::string& module) const;
  // Whether the module has an entry of its own.
  bool has_own(const std::string& module) const {
    return own_.contains(module);
  }

 private:
  std::optional<Quantization> default_;
  // Absent: dense.
  std::map<std::string, std::optional<Quantization>> own_;
};

}  // namespace mlxx::hub
