#pragma once

#include <cmath>
#include <functional>
#include <random>

#include "mlxx/kernels/decode_step/decoder_weights.h"

namespace mlxx::kernels {

// Random weights of a small decoder, the same for every selection: four bits,
// two layers of llama's form to begin with.
class RandomDecoder {
 public:
  static constexpr int kWords = 48;
  static constexpr int kHidden = 64;
  static constexpr int kInner = 96;

  RandomDecoder(
      const Selection& selection,
      int head_size = 16,
      int heads = 4,
      int kv_heads = 2)
      : selection_(selection) {
    weights.hidden_size = kHidden;
    weights.heads = heads;
    weights.kv_heads = kv_heads;
    weights.head_size = head_size;
    weights.rotations.push_back(rotation(head_size, 10000));
    weights.embedding = matrix(kWords, kHidden);
    weights.head = {weights.embedding, {}};
    weights.final_norm = rms(kHidden);
    for (int i = 0; i < 2; ++i) {
      DecoderLayerWeights layer;
      layer.before_attention = rms(kHidden);
      layer.q = {matrix(heads * head_size, kHidden), {}};
      layer.k = {matrix(kv_heads * head_size, kHidden), {}};
      layer.v = {matrix(kv_heads * head_size, kHidden), {}};
      layer.o = {matrix(kHidden, heads * head_size), {}};
      layer.rotation = 0;
      layer.attention_scale = 1.0f / std::sqrt(static_cast<float>(head_size));
      layer.before_mlp = rms(kHidden);
      layer.gate = {matrix(kInner, kHidden), {}};
      layer.up = {matrix(kInner, kHidden), {}};
      layer.down = {matrix(kHidden, kInner), {}};
      weights.layers.push_back(std::move(layer));
    }
  }

  std::vector<float> numbers(int n, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> all(n);
    for (float& x : all) {
      x = normal(random_);
    }
    return all;
  }

  std::shared_ptr<const PanelMatrix> matrix(int out, int in) {
    auto all = numbers(out * in, 0, 1.5f / std::sqrt(static_cast<float>(in)));
    mx::array dense(all.data(), {out, in}, mx::float32);
    auto parts = mx::quantize(dense, 32, 4);
    mx::eval(parts);
    return std::make_shared<const PanelMatrix>(
        WeightArrays{parts[0], parts[1], parts[2]},
        QuantizationSpec{32, 4, "affine"},
        selection_);
  }

  NormWeights rms(int n) {
    return {NormWeights::Kind::rms, 1e-5f, numbers(n, 1, 0.2f), {}};
  }
  NormWeights layer_norm(int n, bool bias) {
    return {
        NormWeights::Kind::layer,
        1e-5f,
        numbers(n, 1, 0.2f),
        bias ? numbers(n, 0, 0.2f) : std::vector<float>{}};
  }
  static RotationTable rotation(int dims, double base) {
    RotationTable table;
    for (int i = 0; i < dims / 2; ++i) {
      table.per_position.push_back(std::pow(base, -2.0 * i / dims));
    }
    return table;
  }

  DecoderWeights weights;

 private:
  Selection selection_;
  std::mt19937 random_{11};
};

}  // namespace mlxx::kernels
