#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mlxx/kernels/activation/activation.h"
#include "mlxx/kernels/attention/block_attention.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// A packed matrix with its bias, if it has one, as float32.
struct PanelLinear {
  std::shared_ptr<const PanelMatrix> matrix;
  std::vector<float> bias;  // [out] or empty
};

// rms: x / sqrt(mean(x^2) + eps) * weight; layer: (x - mean(x)) /
// sqrt(variance(x) + eps) * weight (+ bias). none: x.
struct NormWeights {
  enum class Kind { none, rms, layer };
  Kind kind = Kind::none;
  float eps = 0;
  std::vector<float> weight;  // [n]
  std::vector<float> bias;    // [n] or empty; of the layer kind only

  explicit operator bool() const {
    return kind != Kind::none;
  }
};

// Of queries or keys, between projection and rotation.
struct HeadNorm {
  // Weights [D] of every head, [heads * D] where each has its own, or, if
  // `whole`, of all heads' numbers normed together.
  NormWeights norm;
  bool whole = false;
};

// What rotary positions do: the angle of pair i at position p is p *
// per_position[i].
struct RotationTable {
  std::vector<double> per_position;  // [dims / 2], dims at most D
  double scale = 1;                  // multiplies what is rotated
  bool pairs = false;                // (2i, 2i + 1), not (i, dims / 2 + i)

  bool operator==(const RotationTable&) const = default;
};

// Queries at position p are multiplied by 1 + beta * log(1 + floor(p /
// original_length)).
struct QueryScale {
  float beta = 0;
  int original_length = 1;
};

// h = x + m * after_attention(o(attention(q, k, v of before_attention(x)))),
// then h + m * after_mlp(down(act(gate) * up of before_mlp(h))), any of the
// norms absent. If `parallel`, the network reads x instead of h.
struct DecoderLayerWeights {
  NormWeights before_attention;  // [E]
  PanelLinear q;                 // [heads * D, E]
  PanelLinear k;                 // [kv_heads * D, E]
  PanelLinear v;
  PanelLinear o;  // [E, heads * D]
  HeadNorm q_norm;
  HeadNorm k_norm;
  int rotation = -1;  // of the decoder's tables; -1: none
  QueryScale query_scale;
  float attention_scale = 1;
  float softcap = 0;         // of the scores; 0: none
  std::vector<float> sinks;  // [heads] or empty: one more score of each head
  int window = 0;            // tokens a query sees, itself included; 0: all
  NormWeights after_attention;

  // Without any of these matrices the layer ends with its attention.
  NormWeights before_mlp;
  bool parallel = false;
  PanelLinear gate;  // [I, E]; no matrix: down(act(up))
  PanelLinear up;    // [I, E]
  PanelLinear down;  // [E, I]
  Activation activation = Activation::silu;
  NormWeights after_mlp;
  float residual_multiplier = 1;  // m

  bool has_network() const {
    return gate.matrix || up.matrix || down.matrix;
  }
};

// Layers whose heads have one shape, and what is around them if they are a
// whole decoder.
struct DecoderWeights {
  int hidden_size = 0;  // E
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;  // D
  std::vector<RotationTable> rotations;
  std::vector<DecoderLayerWeights> layers;

  std::shared_ptr<const PanelMatrix> embedding;  // [V, E]; null: layers only
  float embedding_multiplier = 1;
  std::shared_ptr<const PanelMatrix> positions;  // [positions, E] or null
  NormWeights final_norm;
  PanelLinear head;  // [V, E]; the embedding if they are tied
  // logits = softcap * tanh(head(...) * multiplier / softcap)
  float logits_multiplier = 1;
  float final_softcap = 0;  // 0: none
};

// Why the program can't run these weights; empty if it can.
std::string why_not_run(const DecoderWeights& weights);

}  // namespace mlxx::kernels
