#pragma once

#include "mlxx/nn/attention.h"
#include "mlxx/nn/decoder_layer.h"
#include "mlxx/nn/mlp.h"
#include "mlxx/nn/norm.h"

namespace mlxx::nn {

// A feed-forward network of another kind than Mlp in a block, such as a
// mixture of experts.
class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual mx::array operator()(const mx::array& x) const = 0;
  virtual void visit(
      const std::string& prefix,
      const ParameterVisitor& visitor) = 0;
  virtual void use(const kernels::Selection& selection) = 0;
};

// x + residual_multiplier * y, as float16 without overflow if `clip`.
mx::array add_residual(
    const mx::array& x,
    const mx::array& y,
    float multiplier = 1,
    bool clip = false);

// Attention and a feed-forward network, each added to what comes in, with
// norms before and after them as the spec names them. Parameters: under the
// spec's names.
class TransformerBlock : public DecoderLayer {
 public:
  // `network` instead of the spec's Mlp, if there is one.
  explicit TransformerBlock(
      const LayerSpec& spec,
      std::unique_ptr<FeedForward> network = nullptr);

  const LayerSpec& spec() const {
    return spec_;
  }
  // Whether the network is the spec's Mlp.
  bool has_mlp() const {
    return mlp_.has_value();
  }

  mx::array operator()(
      const mx::array& x,
      const kernels::AttentionMask& mask,
      cache::LayerCache& cache) const override;
  // Absent if the layer is parallel: its network does not read the sum.
  std::optional<LayerSpec> attention_half() const override;
  mx::array add_network(const mx::array& h) const override;
  StateSpec state() const override;
  bool takes_packed_rows() const override {
    return true;
  }
  void visit(const std::string& prefix, const ParameterVisitor& visitor)
      override;
  void use(const kernels::Selection& selection) override;

 private:
  mx::array feed_forward(const mx::array& x) const;
  mx::array add(const mx::array& x, const mx::array& y) const;
  // As TrainingRows::keeps_products says.
  mx::array keeping_products(const mx::array& x, const TrainingRows& rows)
      const;

  LayerSpec spec_;
  Attention attention_;
  std::optional<Mlp> mlp_;
  std::unique_ptr<FeedForward> network_;
  std::optional<Norm> before_attention_;
  std::optional<Norm> after_attention_;
  std::optional<Norm> before_mlp_;
  std::optional<Norm> after_mlp_;
};

}  // namespace mlxx::nn
