#pragma once

#include <cmath>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "mlxx/core/safetensors_writer.h"
#include "mlxx/embed/encoder_kinds.h"
#include "tests/core/temporary_folder.h"
#include "tests/embed/tiny_word_piece.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::embed {

inline Json tiny_bert_config() {
  return {
      {"model_type", "bert"},
      {"vocab_size", word_piece_json()["model"]["vocab"].size()},
      {"hidden_size", 64},
      {"intermediate_size", 96},
      {"num_hidden_layers", 2},
      {"num_attention_heads", 4},
      {"max_position_embeddings", 48},
      {"type_vocab_size", 2},
      {"layer_norm_eps", 1e-12},
      {"hidden_act", "gelu"},
      {"id2label", {{"0", "relevance"}}}};
}

inline Json tiny_modern_bert_config() {
  return {
      {"model_type", "modernbert"},
      {"vocab_size", word_piece_json()["model"]["vocab"].size()},
      {"hidden_size", 64},
      {"intermediate_size", 96},
      {"num_hidden_layers", 4},
      {"num_attention_heads", 4},
      {"max_position_embeddings", 512},
      {"local_attention", 8},
      {"id2label", {{"0", "relevance"}}}};
}

using Make =
    std::unique_ptr<Encoder> (*)(const hub::Checkpoint&, EncoderPurpose);

// A decoder of the registry, seeing both sides if it is Gemma 3.
inline Json tiny_decoder_config(const std::string& model_type) {
  Json config =
      parse_json(models::find_model(model_type).tiny_config, model_type);
  config["use_bidirectional_attention"] = model_type == "gemma3_text";
  return config;
}

// Random weights for every parameter of the encoder and its head, if it can
// have one, from a fixed key.
inline std::map<std::string, mx::array> random_tensors(
    const Json& config,
    Make make) {
  models::FakeCheckpoint empty(config);
  std::map<std::string, mx::array> tensors;
  mx::array key = mx::random::key(11);
  make(
      empty,
      make == make_decoder_encoder ? EncoderPurpose::vectors
                                   : EncoderPurpose::scores)
      ->visit([&](const std::string& name, Parameter& parameter) {
        auto [next, used] = mx::random::split(key);
        key = next;
        mx::array noise = mx::random::normal(
            parameter.shape(),
            mx::float32,
            0.0f,
            1.0f,
            used);
        bool is_norm =
            name.ends_with("Norm.weight") || name.ends_with("norm.weight");
        float scale = is_norm ? 0.1f
            : parameter.kind() == Parameter::Kind::matrix
            ? 1.5f / std::sqrt(static_cast<float>(parameter.shape().back()))
            : 0.5f;
        mx::array value = mx::multiply(noise, mx::array(scale));
        value = is_norm ? mx::add(value, mx::array(1.0f)) : value;
        mx::eval(value);
        tensors.emplace(name, value);
      });
  return tensors;
}

// A model's folder, complete, which a test then changes.
class TinyEncoderFolder : public TemporaryFolder {
 public:
  explicit TinyEncoderFolder(
      const Json& config = tiny_bert_config(),
      Make make = make_bert)
      : tensors(random_tensors(config, make)) {
    write("config.json", config.dump());
    write("tokenizer.json", word_piece_json().dump());
    write_weights();
  }

  void write_weights() {
    SafetensorsArrays list(tensors.begin(), tensors.end());
    write_safetensors(path() / "model.safetensors", list);
  }

  // Every matrix as MLX quantizes it, where its rows allow that.
  void quantize(Json config, int bits) {
    constexpr int kGroup = 32;
    std::map<std::string, mx::array> packed;
    for (const auto& [name, value] : tensors) {
      bool is_matrix = value.ndim() == 2 && value.shape(1) % kGroup == 0;
      if (!is_matrix) {
        packed.emplace(name, value);
        continue;
      }
      std::string module = name.substr(0, name.rfind('.'));
      auto parts = mx::quantize(value, kGroup, bits);
      packed.emplace(module + ".weight", parts[0]);
      packed.emplace(module + ".scales", parts[1]);
      packed.emplace(module + ".biases", parts[2]);
    }
    tensors = std::move(packed);
    config["quantization"] = {{"group_size", kGroup}, {"bits", bits}};
    write("config.json", config.dump());
    write_weights();
  }

  std::map<std::string, mx::array> tensors;
};

// What MLXX_KERNEL=auto or fallback gives, on this many threads.
inline models::LoadOptions load_with(bool fallback, int threads = 2) {
  models::LoadOptions options;
  options.kernels = models::selection(fallback);
  options.kernels->threads = std::make_shared<ThreadPool>(threads);
  return options;
}

}  // namespace mlxx::embed
