#pragma once

#include "mlxx/hub/rewritten_checkpoint.h"

namespace mlxx::models {

// Takes apart what some families store as one matrix, so that every model has
// the same parts. Rows stay as they are, also quantized ones.

// model.layers.{}.self_attn.qkv_proj -> q_proj, k_proj, v_proj, by the heads
// that the config names.
void split_qkv(hub::TensorRewrite& tensors);
// model.layers.{}.mlp.gate_up_proj -> gate_proj, up_proj.
void split_gate_up(hub::TensorRewrite& tensors);

}  // namespace mlxx::models
