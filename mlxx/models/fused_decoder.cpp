#include "mlxx/models/fused_decoder.h"

#include <map>

#include "mlxx/cache/decoder_cache.h"

namespace mlxx::models {

namespace {

// The parameters of a module by their names within it, taken one by one.
class Parameters {
 public:
  template <typename Module>
  explicit Parameters(Module& module) {
    module.visit("", [&](const std::string& name, Parameter& parameter) {
      all_.emplace(name.substr(1), &parameter);
    });
  }

  std::vector<float> vector(const std::string& name) {
    const Parameter* parameter = take(name);
    if (!parameter) {
      return {};
    }
    mx::array values =
        mx::contiguous(mx::astype(parameter->value(), mx::float32));
    mx::eval(values);
    return {values.data<float>(), values.data<float>() + values.size()};
  }

  // Null if it is not packed.
  std::shared_ptr<const kernels::PanelMatrix> matrix(const std::string& name) {
    const Parameter* parameter = take(name);
    const auto* panels = parameter
        ? dynamic_cast<const kernels::PackedPanels*>(parameter->packed().get())
        : nullptr;
    if (!panels) {
      unpacked_ = name;
      return nullptr;
    }
    return panels->matrix();
  }

  kernels::PanelLinear linear(const std::string& name) {
    return {matrix(name + ".weight"), vector(name + ".bias")};
  }

  // Empty, or what the kernel would leave out.
  std::string problem() const {
    if (!unpacked_.empty()) {
      return fmt::format("{} is not packed", unpacked_);
    }
    if (!all_.empty()) {
      return fmt::format("{} has no place in it", all_.begin()->first);
    }
    return {};
  }

 private:
  const Parameter* take(const std::string& name) {
    auto node = all_.extract(name);
    return node ? node.mapped() : nullptr;
  }

  std::map<std::string, const Parameter*> all_;
  std::string unpacked_;
};

std::string describe(
    nn::TransformerBlock& block,
    kernels::DecoderLayerWeights& layer) {
  Parameters parameters(block);
  layer.input_norm = parameters.vector("input_layernorm.weight");
  layer.q = parameters.linear("self_attn.q_proj");
  layer.k = parameters.linear("self_attn.k_proj");
  layer.v = parameters.linear("self_attn.v_proj");
  layer.o = parameters.linear("self_attn.o_proj");
  layer.post_norm = parameters.vector("post_attention_layernorm.weight");
  layer.gate = parameters.linear("mlp.gate_proj");
  layer.up = parameters.linear("mlp.up_proj");
  layer.down = parameters.linear("mlp.down_proj");
  layer.window = block.spec().window;
  return parameters.problem();
}

// What the kernel does not compute yet, or empty.
std::string uncovered(const DecoderSpec& decoder) {
  if (decoder.embedding_multiplier != 1 || decoder.learned_positions > 0 ||
      decoder.head_input_divisor != 1 || decoder.logits_multiplier != 1 ||
      decoder.logits_divisor != 1 || decoder.final_softcap != 0) {
    return "its embedding or logits are scaled";
  }
  for (const auto& layer : decoder.layers) {
    if (!layer.rope || layer.activation != kernels::Activation::silu ||
        layer.norm.kind != nn::NormSpec::Kind::rms || layer.softcap != 0 ||
        layer.query_scale.beta != 0 || layer.parallel ||
        layer.residual_multiplier != 1 || layer.clip_residual) {
      return "a layer is not llama's";
    }
  }
  return {};
}

std::string describe(
    const FusedDecoder::Parts& parts,
    kernels::DecoderWeights& weights) {
  std::string problem = uncovered(parts.spec);
  if (!problem.empty()) {
    return problem;
  }
  Parameters embedding(parts.embedding);
  weights.embedding = embedding.matrix("weight");
  weights.head = {weights.embedding, {}};
  weights.final_norm = Parameters(parts.norm).vector("weight");
  if (parts.head) {
    Parameters head(*parts.head);
    weights.head = {head.matrix("weight"), head.vector("bias")};
    if (!head.problem().empty()) {
      return "the head's " + head.problem();
    }
  }
  if (!embedding.problem().empty()) {
    return "the embedding's " + embedding.problem();
  }
  const nn::LayerSpec& spec = parts.blocks.front()->spec();
  weights.hidden_size = spec.hidden_size;
  weights.intermediate_size = spec.intermediate_size;
  weights.heads = spec.heads;
  weights.kv_heads = spec.kv_heads;
  weights.head_size = spec.head_size;
  weights.attention_scale = spec.attention_scale;
  weights.norm_eps = spec.norm.eps;
  auto rotations = spec.rope->rotations();
  if (!rotations) {
    return fmt::format("rope '{}' depends on the length", spec.rope->name());
  }
  weights.rotations = std::move(rotations->per_position);
  weights.rotation_scale = rotations->scale;
  weights.rotate_pairs = rotations->pairs;
  for (auto* block : parts.blocks) {
    if (block->spec().rope != spec.rope) {
      return "layers rotate in different ways";
    }
    problem = describe(*block, weights.layers.emplace_back());
    if (!problem.empty()) {
      return problem;
    }
  }
  return kernels::DecodeStep::refuses(weights);
}

}  // namespace

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
  auto [logits, done] =
      step_(tokens, state.sequences(tokens.shape(0)), state.newest(), rows);
  state.set_newest(std::move(done));
  return logits;
}

}  // namespace mlxx::models
