#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/embed/pooling.h"

namespace mlxx::embed {

// What stands in a folder in the layout of sentence-transformers around the
// transformer itself.
struct SentenceModules {
  bool has_list = false;  // modules.json is there
  // Where config.json and the weights are.
  std::filesystem::path transformer;
  // Absent: no module says it, the model's family does.
  std::optional<Pooling> pooling;
  int pooled_size = 0;       // what the pooling expects; 0: it does not say
  bool pools_prompt = true;  // false: tokens of a prompt take no part
  std::vector<std::filesystem::path> dense;  // projections, in their order
  bool normalizes = false;                   // ends in Normalize
  int max_tokens = 0;                        // max_seq_length; 0: not said
  bool lower_case = false;
  // Texts that may go before what is embedded, by name.
  std::vector<std::pair<std::string, std::string>> prompts;
  std::optional<std::string> default_prompt;  // its name
};

// Reads modules.json, the configs of the modules it lists,
// sentence_bert_config.json and config_sentence_transformers.json, as far as
// they are there. Errors: bad_file; unsupported names the module, the pooling
// or the setting that is not implemented.
SentenceModules read_sentence_modules(const std::filesystem::path& folder);

// One projection of SentenceModules::dense, from its config.json.
struct DenseModule {
  int in_features;
  int out_features;
  bool bias;
  bool tanh;  // after it; else nothing
};
DenseModule read_dense_module(const std::filesystem::path& folder);

}  // namespace mlxx::embed
