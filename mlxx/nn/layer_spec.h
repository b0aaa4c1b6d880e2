#pragma once

#include <memory>

#include "mlxx/nn/rope.h"

namespace mlxx::nn {

// What one pre-norm decoder layer computes, as plain data: the modules are
// made from it, and a kernel that computes whole layers is chosen by it.
struct LayerSpec {
  int hidden_size = 0;
  int intermediate_size = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  float attention_scale = 0;  // multiplies q @ k.T
  float norm_eps = 0;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  int window = 0;  // tokens a query sees, itself included; 0: all
  std::shared_ptr<const Rope> rope;
};

}  // namespace mlxx::nn
