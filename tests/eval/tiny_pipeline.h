#pragma once

#include <memory>

#include <nlohmann/json.hpp>

#include "mlxx/generate/pipeline.h"
#include "tests/generate/tiny_tokenizer.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::eval {

inline Json tiny_config() {
  return {
      {"model_type", "llama"},
      {"vocab_size", 300},
      {"hidden_size", 64},
      {"intermediate_size", 128},
      {"num_hidden_layers", 2},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"max_position_embeddings", 512},
      {"rms_norm_eps", 1e-5},
      {"tie_word_embeddings", true}};
}

class TinyCheckpoint : public models::FakeCheckpoint {
 public:
  explicit TinyCheckpoint(bool automatic_bos)
      : FakeCheckpoint(models::random_checkpoint(tiny_config())) {
    files_.tokenizer_json =
        generate::tiny_tokenizer_json({"hi"}, automatic_bos);
    files_.tokenizer_config_json =
        R"({"bos_token": "<s>", "eos_token": "</s>"})";
  }
  const hub::TextFiles& text() const override {
    return files_;
  }

 private:
  hub::TextFiles files_;
};

// A llama of random weights and a token for each byte.
inline generate::Pipeline tiny_pipeline(
    bool automatic_bos = false,
    const std::optional<kernels::Selection>& kernels = {}) {
  generate::PipelineOptions options;
  options.kernels = kernels;
  return generate::load_pipeline(
      std::make_shared<TinyCheckpoint>(automatic_bos),
      options);
}

}  // namespace mlxx::eval
