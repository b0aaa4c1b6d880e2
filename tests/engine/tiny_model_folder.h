#pragma once

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "mlxx/core/safetensors_writer.h"
#include "tests/core/temporary_folder.h"
#include "tests/engine/tiny_model_text.h"
#include "tests/generate/tiny_tokenizer.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::engine {

// `layers` say how large the model is: about 0.5 MB each in float32.
inline Json tiny_llama_config(int layers = 2, int width = 128) {
  return {
      {"model_type", "llama"},
      {"vocab_size", 300},
      {"hidden_size", width},
      {"intermediate_size", 2 * width},
      {"num_hidden_layers", layers},
      {"num_attention_heads", width / 32},
      {"num_key_value_heads", width / 64},
      {"max_position_embeddings", 512},
      {"rms_norm_eps", 1e-5},
      {"tie_word_embeddings", true}};
}

// A model of random weights with the texts of tiny_model_text(), as a folder in
// Hugging Face's layout.
inline void write_tiny_model(
    const std::filesystem::path& folder,
    const Json& config = tiny_llama_config(),
    const char* chat_template = kTinyTemplate) {
  std::filesystem::create_directories(folder);
  auto write = [&](const char* name, const std::string& content) {
    std::ofstream(folder / name, std::ios::binary) << content;
  };
  write("config.json", config.dump());
  write("tokenizer.json", generate::tiny_tokenizer_json({"hi"}, false));
  Json tokenizer_config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  if (chat_template) {
    tokenizer_config["chat_template"] = chat_template;
  }
  write("tokenizer_config.json", tokenizer_config.dump());
  auto checkpoint = models::random_checkpoint(config);
  SafetensorsArrays arrays;
  for (const auto& tensor : checkpoint.tensors()) {
    arrays.emplace_back(tensor.name, checkpoint.load(tensor.name, {}).weight);
  }
  write_safetensors(folder / "model.safetensors", arrays);
}

}  // namespace mlxx::engine
