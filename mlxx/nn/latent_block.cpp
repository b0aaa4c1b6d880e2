#include "mlxx/nn/latent_block.h"

namespace mlxx::nn {

LatentBlock::LatentBlock(
    const LatentAttentionSpec& attention,
    const LayerSpec& layer,
    std::unique_ptr<FeedForward> network)
    : attention_(attention),
      network_(std::move(network)),
      before_attention_(layer.hidden_size, layer.norm),
      before_mlp_(layer.hidden_size, layer.norm) {
  if (!network_) {
    mlp_.emplace(layer);
  }
}

mx::array LatentBlock::operator()(
    const mx::array& h,
    const kernels::AttentionMask& mask,
    cache::LayerCache& cache) const {
  auto& kv = cache::cache_as<cache::KVCache>(cache);
  mx::array x = mx::add(h, attention_(before_attention_(h), mask, kv));
  mx::array n = before_mlp_(x);
  return mx::add(x, mlp_ ? (*mlp_)(n) : (*network_)(n));
}

void LatentBlock::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  attention_.visit(prefix + ".self_attn", visitor);
  if (mlp_) {
    mlp_->visit(prefix + ".mlp", visitor);
  } else {
    network_->visit(prefix + ".mlp", visitor);
  }
  before_attention_.visit(prefix + ".input_layernorm", visitor);
  before_mlp_.visit(prefix + ".post_attention_layernorm", visitor);
}

void LatentBlock::use(const kernels::Selection& selection) {
  attention_.use(selection);
  if (mlp_) {
    mlp_->use(selection);
  } else {
    network_->use(selection);
  }
  before_attention_.use(selection);
  before_mlp_.use(selection);
}

}  // namespace mlxx::nn
