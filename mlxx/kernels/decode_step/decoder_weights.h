#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mlxx/kernels/attention/block_attention.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// A packed matrix with its bias, if it has one, as float32.
struct PanelLinear {
  std::shared_ptr<const PanelMatrix> matrix;
  std::vector<float> bias;  // [out] or empty
};

// One pre-norm layer: h = x + o(attention(rope(q), rope(k), v)), then h +
// down(silu(gate) * up), each part of the RMS norm of its input.
struct DecoderLayerWeights {
  std::vector<float> input_norm;  // [E]
  PanelLinear q;                  // [heads * D, E]
  PanelLinear k;                  // [kv_heads * D, E]
  PanelLinear v;
  PanelLinear o;                 // [E, heads * D]
  std::vector<float> post_norm;  // [E]
  PanelLinear gate;              // [I, E]
  PanelLinear up;
  PanelLinear down;  // [E, I]
  int window = 0;    // tokens a query sees, itself included; 0: all
};

// A decoder whose layers have one shape.
struct DecoderWeights {
  int hidden_size = 0;        // E
  int intermediate_size = 0;  // I
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;  // D
  float attention_scale = 0;
  float norm_eps = 0;
  // Angle of pair i at position p: p * rotations[i].
  std::vector<double> rotations;  // [dims / 2]
  double rotation_scale = 1;      // multiplies what is rotated
  bool rotate_pairs = false;      // (2i, 2i + 1), not (i, dims / 2 + i)
  std::shared_ptr<const PanelMatrix> embedding;  // [V, E]
  std::vector<DecoderLayerWeights> layers;
  std::vector<float> final_norm;  // [E]
  PanelLinear head;               // [V, E]; the embedding if they are tied
};

}  // namespace mlxx::kernels
