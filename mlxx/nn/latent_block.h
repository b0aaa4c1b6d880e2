#pragma once

#include "mlxx/nn/block.h"
#include "mlxx/nn/latent_attention.h"

namespace mlxx::nn {

// Latent attention and a feed-forward network, each of normed input and added
// to what came in. Parameters: self_attn, mlp, input_layernorm,
// post_attention_layernorm.
class LatentBlock : public DecoderLayer {
 public:
  // `network` null: the Mlp of `layer`, of which else only norm and hidden size
  // count.
  LatentBlock(
      const LatentAttentionSpec& attention,
      const LayerSpec& layer,
      std::unique_ptr<FeedForward> network);

  mx::array operator()(
      const mx::array& h,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const override;
  StateSpec state() const override {
    return {};
  }
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override;
  void use(const kernels::Selection& selection) override;

 private:
  LatentAttention attention_;
  std::optional<Mlp> mlp_;
  std::unique_ptr<FeedForward> network_;
  Norm before_attention_;
  Norm before_mlp_;
};

}  // namespace mlxx::nn
