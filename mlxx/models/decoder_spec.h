#pragma once

#include <string>
#include <vector>

#include "mlxx/nn/layer_spec.h"

namespace mlxx::models {

// How the embedding's multiplier is rounded before it meets the vectors.
enum class MultiplierRounding { none, bfloat16 };

// A decoder around its layers, as plain data.
struct DecoderSpec {
  std::string model_type;
  int vocab_size = 0;
  int hidden_size = 0;
  int max_position_embeddings = 0;  // 0: the config names none
  std::vector<nn::LayerSpec> layers;
  nn::NormSpec final_norm;

  float embedding_multiplier = 1;
  MultiplierRounding multiplier_rounding = MultiplierRounding::none;
  int learned_positions = 0;  // rows of a table of positions; 0: none

  bool tied = false;  // the output head is the embedding
  bool head_bias = false;
  // logits = softcap(head(norm(h) / head_input_divisor) * logits_multiplier
  // / logits_divisor)
  float head_input_divisor = 1;
  float logits_multiplier = 1;
  float logits_divisor = 1;
  float final_softcap = 0;  // 0: none

  // Names in a checkpoint.
  std::string embedding = "model.embed_tokens";
  std::string positions = "model.embed_positions";
  std::string layer_list = "model.layers";
  std::string norm = "model.norm";
  std::string head = "lm_head";

  // Calls change(layer, its index) for each layer.
  template <typename Change>
  void for_each_layer(const Change& change) {
    for (size_t i = 0; i < layers.size(); ++i) {
      change(layers[i], static_cast<int>(i));
    }
  }
};

}  // namespace mlxx::models
