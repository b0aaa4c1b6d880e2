#pragma once

#include "mlxx/base/json.h"

namespace mlxx::models {

// What a ModelSummary says of sizes, from config.json alone and on any thread.
struct ConfigSizes {
  int vocab_size = 0;
  int max_position_embeddings = 0;  // 0: the config names none
};

// `config`: of a checkpoint of a language model or an encoder. bad_file, with
// the key, for what is no size or missing.
ConfigSizes read_config_sizes(const Json& config);

}  // namespace mlxx::models
