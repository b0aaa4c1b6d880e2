#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/models/model.h"

namespace mlxx::adapters {

// The number of the decoder layer that a parameter or module belongs to;
// nothing outside of the decoder layers.
std::optional<int> layer_of(const std::string& name);

enum class LayerKind { linear, experts, embedding };

// What a pass through the model asks adapters about (nn/row_adapters.h), and
// so the layers that they can change.
std::map<const Parameter*, LayerKind> adaptable_layers(
    const models::Model& model);

// A layer as mlx-lm has it: several weights where a model takes apart, when it
// is loaded, what is one matrix there (query, key and value; gate and up).
struct AdaptableModule {
  std::string name;  // mlx-lm's: "model.layers.0.self_attn.q_proj"
  // Within its decoder layer: "self_attn.q_proj". Else the whole name.
  std::string key;
  LayerKind kind = LayerKind::linear;
  int layer = 0;  // -1 before the first decoder layer, their number behind them
  std::vector<const Parameter*> weights;  // in the order of their rows
  int experts = 0;                        // of LayerKind::experts
  int inputs = 0;                         // of an embedding: its tokens
  int outputs = 0;                        // of an embedding: their size
};

// In the order in which mlx-lm's module tree is flattened, which the order of
// random numbers and of trained parameters follow. Layers that are no modules
// of their own in mlx-lm (routers that are a bare matrix there) are left out.
// Reference: mlx-lm 0.32.2, models/*.py; mlx.nn.Module.named_modules.
std::vector<AdaptableModule> adaptable_modules(const models::Model& model);

}  // namespace mlxx::adapters
