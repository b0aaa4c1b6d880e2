#include "mlxx/models/config_sizes.h"

#include <climits>

#include <nlohmann/json.hpp>

namespace mlxx::models {

ConfigSizes read_config_sizes(const Json& config) {
  constexpr int kMostTokens = 1 << 24;
  JsonView view(config, "config.json");
  if (view.has("text_config") && !view.has("vocab_size")) {
    view = view.object("text_config");
  }
  ConfigSizes sizes;
  sizes.vocab_size =
      static_cast<int>(view.integer("vocab_size", 1, kMostTokens));
  // GPT-2's name for it.
  const char* key =
      view.has("n_positions") ? "n_positions" : "max_position_embeddings";
  sizes.max_position_embeddings =
      static_cast<int>(view.integer_or(key, 0, 0, INT_MAX));
  return sizes;
}

}  // namespace mlxx::models
