#pragma once

#include "mlxx/cache/cache.h"
#include "mlxx/nn/layer_spec.h"
#include "mlxx/nn/linear.h"

namespace mlxx::nn {

// Multi-head attention with grouped key and value heads, rotary positions and
// a cache. Parameters: q_proj, k_proj, v_proj, o_proj.
class Attention {
 public:
  explicit Attention(const LayerSpec& spec);
  // Which kernels compute; without a call the plain operations.
  void use(const kernels::Selection& selection) {
    selection_ = selection;
  }

  // x [B, L, E] -> [B, L, E]; appends L tokens to the cache.
  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::KVCache& cache) const;

  void visit(const std::string& prefix, const ParameterVisitor& visitor);

 private:
  int heads_;
  int kv_heads_;
  int head_size_;
  float scale_;
  std::shared_ptr<const Rope> rope_;
  Linear q_proj_;
  Linear k_proj_;
  Linear v_proj_;
  Linear o_proj_;
  kernels::Selection selection_;
};

}  // namespace mlxx::nn
