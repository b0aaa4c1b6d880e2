#pragma once

#include "mlxx/cache/cache.h"
#include "mlxx/nn/layer_spec.h"
#include "mlxx/nn/linear.h"
#include "mlxx/nn/norm.h"

namespace mlxx::nn {

struct TrainingRows;

// [B, L, heads * D] -> [B, heads, L, D]
mx::array split_heads(const mx::array& x, int heads);
// [B, heads, L, D] -> [B, L, heads * D]
mx::array join_heads(const mx::array& x);

// Multi-head attention with grouped key and value heads and a cache; norms,
// rotation, softcap and sinks as the spec says. Parameters: the projections
// under the spec's names; q_norm and k_norm, or q_layernorm and k_layernorm;
// sinks.
class Attention {
 public:
  explicit Attention(const LayerSpec& spec);
  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection);

  // x [B, L, E] -> [B, L, E]; appends L tokens to the cache.
  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::KVCache& cache) const;
  // The same up to the output projection: [B, L, heads * D].
  mx::array heads_output(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::KVCache& cache) const;
  mx::array project(const mx::array& heads) const {
    return o_(heads);
  }
  // What heads_output() begins with: queries, keys and values before norms and
  // rotation, each [B, L, heads * D]; and the rest of it, of whole texts.
  std::vector<mx::array> projections(const mx::array& x) const;
  mx::array texts_output(
      const std::vector<mx::array>& projections,
      const TrainingRows& rows) const;

  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  // Heads [B, H, L, D] in the scope of nn/training_rows.h.
  mx::array attend_texts(
      mx::array queries,
      mx::array keys,
      const mx::array& values,
      const TrainingRows& rows) const;
  mx::array normed_heads(
      const mx::array& x,
      int heads,
      const std::optional<Norm>& norm,
      const std::optional<Parameter>& weights) const;

  LayerSpec spec_;
  Linear q_;
  Linear k_;
  Linear v_;
  Linear o_;
  std::optional<Norm> q_norm_;
  std::optional<Norm> k_norm_;
  std::optional<Parameter> q_layernorm_;  // [heads, D]
  std::optional<Parameter> k_layernorm_;
  std::optional<Parameter> sinks_;  // [heads]
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
