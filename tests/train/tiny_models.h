#pragma once

#include "mlxx/core/autograd.h"
#include "mlxx/models/model.h"
#include "mlxx/train/trainable.h"
#include "tests/adapters/adapter_writer.h"
#include "tests/models/fake_checkpoint.h"

// Tiny models whose layers are trained, and what is asked of them.
namespace mlxx::train {

using adapters::TemporaryFolder;

inline Json llama_config() {
  return parse_json(
      R"({"model_type":"llama","vocab_size":96,"hidden_size":64,
          "intermediate_size":128,"num_hidden_layers":3,
          "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
          "rms_norm_eps":1e-5,"attention_bias":true,
          "tie_word_embeddings":true})",
      "config.json");
}

inline Json mixture_config() {
  return parse_json(
      R"({"model_type":"qwen3_moe","vocab_size":96,"hidden_size":64,
          "intermediate_size":96,"moe_intermediate_size":32,
          "num_hidden_layers":2,"num_attention_heads":4,
          "num_key_value_heads":2,"head_dim":16,"num_experts":4,
          "num_experts_per_tok":2,"norm_topk_prob":true,
          "decoder_sparse_step":1,"mlp_only_layers":[],
          "rms_norm_eps":1e-5,"rope_theta":10000.0,
          "max_position_embeddings":512,"tie_word_embeddings":true})",
      "config.json");
}

using ModelPtr = std::shared_ptr<const models::Model>;

// Activations in float32: int16 ones round a hidden number that differs in its
// last bit to another step.
inline kernels::Selection selection_of(bool fallback) {
  kernels::Selection selection = models::selection(fallback);
  selection.activations = kernels::ActivationForm::float32;
  return selection;
}

inline ModelPtr model_of(
    const Json& config,
    bool fallback,
    const std::optional<hub::Quantization>& q = std::nullopt) {
  return models::load_model(
      models::random_checkpoint(config, q),
      models::LoadOptions{.kernels = selection_of(fallback)});
}

inline mx::array tokens() {
  std::vector<int32_t> ids;
  for (int i = 0; i < 24; ++i) {
    ids.push_back((i * 11 + 5) % 96);
  }
  return mx::array(ids.data(), {2, 12}, mx::int32);
}

inline mx::array forward(const models::Model& model) {
  models::CacheOptions options;
  options.per_layer = true;
  auto caches = model.make_cache(options);
  return model.forward(tokens(), caches);
}

// Outside of training: no trace, the current values.
inline mx::array logits_of(const models::Model& model, Trainable& trainable) {
  std::optional<mx::array> logits;
  trainable.with({}, {}, [&] { logits = forward(model); });
  mx::eval(*logits);
  return *logits;
}

// Other values than the start's, where b is zero.
inline void shake(Trainable& trainable, uint64_t seed, float size = 0.1f) {
  std::vector<mx::array> values;
  for (const mx::array& value : trainable.values()) {
    mx::array noise = mx::multiply(
        mx::random::normal(value.shape(), mx::float32, mx::random::key(seed++)),
        mx::array(size));
    values.push_back(mx::add(value, mx::astype(noise, value.dtype())));
  }
  mx::eval(values);
  trainable.set_values(values);
}

inline float loss_value(const models::Model& model, Trainable& trainable) {
  return mx::mean(mx::square(logits_of(model, trainable))).item<float>();
}

// In all values, of the mean of the squared logits.
inline std::vector<mx::array> gradients_of(
    const models::Model& model,
    Trainable& trainable) {
  std::vector<size_t> indices;
  std::vector<int> numbers;
  for (size_t i = 0; i < trainable.names().size(); ++i) {
    indices.push_back(i);
    numbers.push_back(static_cast<int>(i));
  }
  auto loss = [&](const std::vector<mx::array>& values) {
    std::optional<mx::array> logits;
    trainable.with(indices, values, [&] { logits = forward(model); });
    return std::vector<mx::array>{mx::mean(mx::square(*logits))};
  };
  auto result = ValueAndGrad(loss, numbers).apply(trainable.values());
  mx::eval(result.gradients);
  return result.gradients;
}

inline const hub::Quantization kFourBits{32, 4, "affine"};

}  // namespace mlxx::train
