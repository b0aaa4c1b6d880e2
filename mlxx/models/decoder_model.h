#pragma once

#include <memory>
#include <vector>

#include "mlxx/models/cuda_decoder.h"
#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_spec.h"
#include "mlxx/models/fused_decoder.h"
#include "mlxx/models/fused_layers.h"
#include "mlxx/models/model.h"
#include "mlxx/models/training_face.h"
#include "mlxx/nn/embedding.h"

namespace mlxx::models {

using DecoderLayers = std::vector<std::unique_ptr<nn::DecoderLayer>>;

// Embedding, layers, last norm and head: what almost every family is, its
// layers given by the spec or made by the family.
class DecoderModel : public Model, private TrainingFace {
 public:
  // Every layer a TransformerBlock of its LayerSpec.
  explicit DecoderModel(DecoderSpec spec);
  // Layers of the family's own; spec.layers may be empty.
  DecoderModel(DecoderSpec spec, DecoderLayers layers);

  ModelSummary summary() const override;
  cache::CacheList make_cache(const CacheOptions& options) const override;
  mx::array forward(const mx::array& tokens, cache::CacheList& cache)
      const override;
  mx::array forward_last(const mx::array& tokens, cache::CacheList& cache)
      const override;
  bool append_prompts(
      const mx::array& tokens,
      std::span<const int> lengths,
      std::span<cache::CacheList* const> rows) const override;
  void visit(const ParameterVisitor& visitor) override;
  using Model::visit;
  void use(const kernels::Selection& selection) override;
  bool skips(const std::string& tensor) const override;
  const TrainingFace* training_face() const override {
    return this;
  }

  const DecoderSpec& spec() const {
    return spec_;
  }

 private:
  int layer_count() const override;
  mx::array embedded(const mx::array& tokens) const override;
  mx::array layer_output(int index, const mx::array& h) const override;
  mx::array normed(const mx::array& h) const override;
  mx::array logits(const mx::array& normed) const override;
  HeadParts head_parts() const override;
  bool takes_packed_rows() const override;

  void use_bfloat16();
  mx::array multiplied_embedding(const mx::array& tokens) const;
  mx::array embed(const mx::array& tokens, const cache::CacheList& cache) const;
  // Before the last norm: [B, L, E].
  mx::array trunk(const mx::array& tokens, cache::CacheList& cache) const;
  mx::array head(const mx::array& h) const;

  DecoderSpec spec_;
  nn::Embedding embed_tokens_;
  std::optional<nn::Embedding> positions_;
  DecoderLayers layers_;
  nn::Norm norm_;
  std::optional<nn::Linear> lm_head_;
  kernels::Selection selection_;
  std::optional<FusedDecoder> fused_;
  std::optional<CudaDecoder> cuda_;          // where fused_ is absent
  std::optional<FusedLayers> fused_layers_;  // where fused_ is absent
};

// ModelInfo::make of a family whose spec says all.
template <DecoderSpec (*read_spec)(const DecoderConfig&)>
std::unique_ptr<Model> make_decoder(const hub::Checkpoint& checkpoint) {
  return std::make_unique<DecoderModel>(read_spec(DecoderConfig(checkpoint)));
}

}  // namespace mlxx::models
