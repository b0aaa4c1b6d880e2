#pragma once

#include "mlxx/cache/cache.h"
#include "mlxx/nn/attention.h"
#include "mlxx/nn/mlp.h"
#include "mlxx/nn/switch_mlp.h"

namespace mlxx::models {

// One layer of Gemma 4, as plain data.
struct Gemma4LayerSpec {
  // Sizes, rope, window, norm and activation. With a window of 0 it is a layer
  // of full attention, which has its own head size and key heads.
  nn::LayerSpec block;
  bool has_keys = true;          // else it reads those of an earlier layer
  bool values_are_keys = false;  // as projected, before norm and rotation
  int per_layer_input = 0;       // width of the layer's own input; 0: none
  int experts = 0;               // beside the network; 0: none
  int experts_per_token = 0;
  int expert_size = 0;
};

// The experts of a layer, chosen by a scaled norm of what comes in. Parameters:
// router.scale, router.per_expert_scale, router.proj, experts.switch_glu.
class Gemma4Experts {
 public:
  explicit Gemma4Experts(const Gemma4LayerSpec& spec);

  // `h` [B, L, E] chooses the experts of `x` [B, L, E].
  mx::array operator()(const mx::array& h, const mx::array& x) const;

  void visit(const std::string& prefix, const ParameterVisitor& visitor);
  void use(const kernels::Selection& selection) {
    experts_.use(selection);
  }

 private:
  int per_token_;
  float eps_;
  float root_;
  Parameter scale_;             // [E]
  Parameter per_expert_scale_;  // [experts]
  nn::Linear projection_;
  nn::SwitchMlp experts_;
};

// What a layer attends to, for later layers without keys of their own.
struct Gemma4Keys {
  cache::KVView view;
  kernels::Position first;
};

// Attention without a scale, whose queries, keys and values are normed; a
// gated network; and a gate on an input of the layer's own.
class Gemma4Layer {
 public:
  explicit Gemma4Layer(const Gemma4LayerSpec& spec);

  const Gemma4LayerSpec& spec() const {
    return spec_;
  }
  // h [B, L, E]; input [B, L, per_layer_input]. `keys` are those of the layer
  // that this one reads; filled by a layer that has its own, whose cache must
  // be given.
  mx::array operator()(
      const mx::array& h,
      const kernels::AttentionMask& mask,
      cache::KVCache* cache,
      std::optional<Gemma4Keys>& keys,
      const std::optional<mx::array>& input) const;

  void visit(const std::string& prefix, const ParameterVisitor& visitor);
  void use(const kernels::Selection& selection);

 private:
  mx::array attend(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::KVCache* cache,
      std::optional<Gemma4Keys>& keys) const;
  mx::array feed_forward(const mx::array& h) const;

  Gemma4LayerSpec spec_;
  nn::Linear q_;
  std::optional<nn::Linear> k_;
  std::optional<nn::Linear> v_;
  nn::Linear o_;
  nn::Norm q_norm_;
  std::optional<nn::Norm> k_norm_;
  nn::Mlp mlp_;
  nn::Norm input_norm_;
  nn::Norm post_attention_norm_;
  nn::Norm pre_mlp_norm_;
  nn::Norm post_mlp_norm_;
  std::optional<Gemma4Experts> experts_;
  std::optional<nn::Norm> post_mlp_norm_1_;
  std::optional<nn::Norm> pre_mlp_norm_2_;
  std::optional<nn::Norm> post_mlp_norm_2_;
  std::optional<nn::Linear> input_gate_;
  std::optional<nn::Linear> input_projection_;
  std::optional<nn::Norm> post_input_norm_;
  Parameter scalar_;  // [1], of what leaves the layer
  kernels::Selection selection_;
};

}  // namespace mlxx::models
