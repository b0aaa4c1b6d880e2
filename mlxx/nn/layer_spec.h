#pragma once

#include <memory>
#include <string>

#include "mlxx/kernels/activation/activation.h"
#include "mlxx/nn/rope.h"

namespace mlxx::nn {

struct NormSpec {
  enum class Kind {
    rms,             // x / sqrt(mean(x^2) + eps) * weight
    rms_plus_one,    // the same with 1 + weight
    layer,           // (x - mean) / sqrt(var + eps) * weight (+ bias)
    layer_plus_one,  // the same with 1 + weight
  };
  Kind kind = Kind::rms;
  float eps = 0;
  bool bias = false;  // only of the layer kinds

  bool operator==(const NormSpec&) const = default;
};

// Norms of queries and keys, between projection and rotation.
enum class QkNorm {
  none,
  per_head,        // of each head's D numbers; weights q_norm, k_norm [D]
  whole_width,     // of all heads' together; weights [heads * D]
  layer_per_head,  // LayerNorm of each head, q_layernorm [heads, D]
};

// In which dtype queries meet keys; the result is in that of the values.
enum class ScoreDtype {
  as_projected,
  float32,           // both become float32
  float32_for_half,  // float16 queries do
};

// In which order a parallel layer adds, which rounds differently.
enum class ParallelSum {
  residual_first,  // (x + attention) + mlp
  branches_first,  // (attention + mlp) + x
};

// Names of a layer's parts in a checkpoint. A norm with an empty name is not
// there.
struct LayerNames {
  std::string attention = "self_attn";
  std::string q = "q_proj";
  std::string k = "k_proj";
  std::string v = "v_proj";
  std::string o = "o_proj";
  std::string q_norm = "q_norm";  // of QkNorm::per_head and whole_width
  std::string k_norm = "k_norm";
  std::string mlp = "mlp";
  std::string gate = "gate_proj";  // empty: no gate, down(act(up(x)))
  std::string up = "up_proj";
  std::string down = "down_proj";
  std::string before_attention = "input_layernorm";
  std::string after_attention;  // of what attention adds
  std::string before_mlp = "post_attention_layernorm";
  std::string after_mlp;
};

// Scales queries by their position (Llama 4, Ministral 3): 1 + beta * log(1 +
// floor(position / original_length)).
struct PositionScale {
  float beta = 0;  // 0: no scaling
  int original_length = 1;
};

// What one decoder layer computes, as plain data: the modules are made from
// it, and a kernel that computes whole layers is chosen by it.
struct LayerSpec {
  int hidden_size = 0;
  int intermediate_size = 0;  // 0: the network is not the layer's own MLP
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  float attention_scale = 0;  // multiplies q @ k.T
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  kernels::Activation activation = kernels::Activation::silu;
  int window = 0;  // tokens a query sees, itself included; 0: all
  std::shared_ptr<const Rope> rope;  // null: positions are not rotated
  QkNorm qk_norm = QkNorm::none;
  NormSpec norm;       // of all norms of the layer
  float softcap = 0;   // of the scores; 0: none
  bool sinks = false;  // one learned score per head, "sinks" [heads]
  ScoreDtype score_dtype = ScoreDtype::as_projected;
  PositionScale query_scale;
  // Attention and network both read norm(x); no norm before the network.
  bool parallel = false;
  ParallelSum parallel_sum = ParallelSum::residual_first;
  float residual_multiplier = 1;  // of what each part adds
  // float16 sums saturate instead of overflowing (Gemma 3).
  bool clip_residual = false;
  LayerNames names;
};

}  // namespace mlxx::nn
