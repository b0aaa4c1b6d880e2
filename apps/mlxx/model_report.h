#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/hub/checkpoint.h"

namespace mlxx::apps {

// What `mlxx show` says of a model on disk. No weights are read.
struct ModelReport {
  struct StoredType {
    int tensors = 0;
    uint64_t bytes = 0;
    uint64_t parameters = 0;
    // In memory; several forms where modules differ.
    std::set<std::string> resident_forms;
    uint64_t resident_bytes = 0;
  };
  // Tensors that are left out for one reason.
  struct LeftOut {
    int tensors = 0;
    uint64_t bytes = 0;
  };

  std::string path;
  std::string format;
  std::string model_type;
  std::vector<std::string> architectures;
  // Why mlxx cannot run it; empty if it can.
  std::string unsupported;
  // Makes vectors or scores of texts, and no answers.
  bool is_encoder = false;
  uint64_t file_bytes = 0;
  uint64_t parameters = 0;
  // The config's numbers; absent if it does not name them.
  std::optional<int64_t> layers;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> intermediate_size;
  std::optional<int64_t> heads;
  std::optional<int64_t> kv_heads;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> context_length;
  bool tied_embeddings = false;
  std::map<std::string, StoredType> stored;  // "Q4_1" -> how much of it
  std::map<std::string, LeftOut> left_out;   // by reason: "vision tower"

  std::optional<int64_t> tokenizer_size;  // absent if it is unusable
  std::string tokenizer_error;
  std::set<int32_t> eos_ids;
  // Names of the chat templates, and why the one to use cannot be.
  std::vector<std::string> chat_templates;
  std::string chat_template_error;
  std::string kernels;  // which implementations this process would run
};

ModelReport make_model_report(const hub::Checkpoint& checkpoint);

std::string format_model_report(const ModelReport& report);
OrderedJson model_report_json(const ModelReport& report);

}  // namespace mlxx::apps
