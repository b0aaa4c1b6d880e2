#pragma once

#include "mlxx/nn/block.h"

namespace mlxx::nn {

// What lets tokens see each other in a layer: attention, a scan, a short
// convolution.
class TokenMixer {
 public:
  virtual ~TokenMixer() = default;
  // x [B, L, E] -> [B, L, E]; takes L tokens into the cache. `mask` is for
  // attention; a recurrent cache has its own.
  virtual mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const = 0;
  virtual StateSpec state() const = 0;
  virtual void visit(
      const std::string& prefix,
      const ParameterVisitor& visitor) = 0;
  virtual void use(const kernels::Selection& selection) = 0;
};

class AttentionMixer : public TokenMixer {
 public:
  explicit AttentionMixer(const LayerSpec& spec)
      : spec_(spec), attention_(spec) {}

  const LayerSpec& spec() const {
    return spec_;
  }

  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const override {
    return attention_(x, mask, cache::cache_as<cache::KVCache>(cache));
  }
  StateSpec state() const override {
    return {.kind = StateSpec::Kind::attention, .window = spec_.window};
  }
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override {
    attention_.visit(prefix, visitor);
  }
  void use(const kernels::Selection& selection) override {
    attention_.use(selection);
  }

 private:
  LayerSpec spec_;
  Attention attention_;
};

// The spec's Mlp where a FeedForward is asked for.
class MlpNetwork : public FeedForward {
 public:
  explicit MlpNetwork(const LayerSpec& spec) : mlp_(spec) {}

  mx::array operator()(const mx::array& x) const override {
    return mlp_(x);
  }
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override {
    mlp_.visit(prefix, visitor);
  }
  void use(const kernels::Selection& selection) override {
    mlp_.use(selection);
  }

 private:
  Mlp mlp_;
};

// The parts of a MixerLayer under their names in a checkpoint; either may be
// absent, with its norm.
struct MixerLayerParts {
  std::unique_ptr<TokenMixer> mixer;
  std::string mixer_name;
  std::string mixer_norm;
  std::unique_ptr<FeedForward> network;
  std::string network_name;
  std::string network_norm;
};

struct MixerLayerOptions {
  int hidden_size = 0;
  NormSpec norm;
  float residual_multiplier = 1;  // of what each part adds
};

// h = x + mixer(norm(x)); h + network(norm(h)): the pre-norm layer of
// recurrent and hybrid models.
class MixerLayer : public DecoderLayer {
 public:
  MixerLayer(const MixerLayerOptions& options, MixerLayerParts parts);

  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const override;
  // That of the mixer; without one a recurrent one of no arrays, which counts
  // the tokens.
  StateSpec state() const override;
  // If the mixer is attention.
  std::optional<LayerSpec> attention_half() const override;
  mx::array add_network(const mx::array& h) const override;
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override;
  void use(const kernels::Selection& selection) override;

 private:
  MixerLayerParts parts_;
  NormSpec norm_;
  float residual_multiplier_;
  std::optional<Norm> mixer_norm_;
  std::optional<Norm> network_norm_;
};

}  // namespace mlxx::nn
