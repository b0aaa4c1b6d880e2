#include "mlxx/models/fused_decoder.h"

#include "mlxx/cache/decoder_cache.h"
#include "mlxx/models/module_weights.h"
#include "mlxx/nn/row_adapters.h"

namespace mlxx::models {

namespace {

std::string describe_ends(
    const FusedDecoder::Parts& parts,
    kernels::DecoderWeights& weights) {
  const DecoderSpec& spec = parts.spec;
  ModuleWeights embedding(parts.embedding);
  weights.embedding = embedding.matrix("weight");
  weights.head = {weights.embedding, {}};
  if (!embedding.problem().empty()) {
    return "the embedding's " + embedding.problem();
  }
  if (spec.learned_positions > 0 && !parts.positions) {
    return "its table of positions was not given";
  }
  if (parts.positions) {
    ModuleWeights positions(*parts.positions);
    weights.positions = positions.matrix("weight");
    if (!positions.problem().empty()) {
      return "the positions' " + positions.problem();
    }
  }
  ModuleWeights norm(parts.norm);
  weights.final_norm = norm.norm("", spec.final_norm);
  if (parts.head) {
    ModuleWeights head(*parts.head);
    weights.head = {head.matrix("weight"), head.vector("bias")};
    if (!head.problem().empty()) {
      return "the head's " + head.problem();
    }
  }
  weights.embedding_multiplier = FusedDecoder::embedding_multiplier(spec);
  weights.logits_multiplier =
      spec.logits_multiplier / (spec.logits_divisor * spec.head_input_divisor);
  weights.final_softcap = spec.final_softcap;
  return {};
}

std::string describe(
    const FusedDecoder::Parts& parts,
    kernels::DecoderWeights& weights) {
  if (parts.blocks.empty()) {
    return "there is no layer";
  }
  std::string problem = describe_ends(parts, weights);
  if (!problem.empty()) {
    return problem;
  }
  const nn::LayerSpec& first = parts.blocks.front()->spec();
  weights.hidden_size = first.hidden_size;
  weights.heads = first.heads;
  weights.kv_heads = first.kv_heads;
  weights.head_size = first.head_size;
  for (auto* block : parts.blocks) {
    problem = add_layer(*block, weights);
    if (!problem.empty()) {
      return problem;
    }
  }
  return kernels::why_not_run(weights);
}

}  // namespace

float FusedDecoder::embedding_multiplier(const DecoderSpec& spec) {
  if (spec.multiplier_rounding == MultiplierRounding::none) {
    return spec.embedding_multiplier;
  }
  return mx::astype(
             mx::array(spec.embedding_multiplier, mx::bfloat16),
             mx::float32)
      .item<float>();
}

std::optional<FusedDecoder> FusedDecoder::make(
    const Parts& parts,
    const kernels::Selection& selection,
    std::string& why) {
  if (!selection.has_cpu_kernels()) {
    why = "this backend has no such kernel, or plain operations are asked for";
    return std::nullopt;
  }
  auto weights = std::make_shared<kernels::DecoderWeights>();
  why = describe(parts, *weights);
  if (!why.empty()) {
    return std::nullopt;
  }
  return FusedDecoder(kernels::DecodeStep(std::move(weights), selection));
}

cache::CacheList FusedDecoder::make_cache() const {
  cache::CacheList caches;
  caches.push_back(std::make_unique<cache::DecoderCache>(step_.kv_shape()));
  return caches;
}

bool FusedDecoder::made(const cache::CacheList& cache) {
  return cache.size() == 1 &&
      dynamic_cast<const cache::DecoderCache*>(cache.front().get());
}

mx::array FusedDecoder::operator()(
    const mx::array& tokens,
    cache::CacheList& cache,
    kernels::LogitRows rows) const {
  auto& state = static_cast<cache::DecoderCache&>(*cache.front());
  std::vector<std::shared_ptr<const kernels::DecoderChanges>> changes;
  if (const nn::RowAdapters* adapters = nn::active_adapters()) {
    changes = adapters->changes_of_decoder(step_.weights(), tokens.shape(0));
  }
  auto [logits, done] = step_(
      tokens,
      state.sequences(tokens.shape(0)),
      state.newest(),
      rows,
      changes);
  state.set_newest(done);
  return logits;
}

}  // namespace mlxx::models
