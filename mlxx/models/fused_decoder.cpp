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

  // Empty if there is none. One is added in the weights' own dtype, as the
  // plain operations round it.
  std::vector<float> vector(const std::string& name, bool plus_one = false) {
    const Parameter* parameter = take(name);
    if (!parameter) {
      return {};
    }
    mx::array values = parameter->value();
    if (plus_one) {
      values = mx::add(mx::array(1.0f, values.dtype()), values);
    }
    values = mx::contiguous(mx::astype(values, mx::float32));
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

kernels::NormWeights norm_weights(
    Parameters& parameters,
    const std::string& prefix,  // of its weight and bias
    const nn::NormSpec& spec) {
  using Kind = nn::NormSpec::Kind;
  bool plus_one =
      spec.kind == Kind::rms_plus_one || spec.kind == Kind::layer_plus_one;
  bool rms = spec.kind == Kind::rms || spec.kind == Kind::rms_plus_one;
  return {
      .kind = rms ? kernels::NormWeights::Kind::rms
                  : kernels::NormWeights::Kind::layer,
      .eps = spec.eps,
      .weight = parameters.vector(prefix + "weight", plus_one),
      .bias = parameters.vector(prefix + "bias")};
}

kernels::HeadNorm
head_norm(Parameters& parameters, bool of_keys, const nn::LayerSpec& spec) {
  const nn::LayerNames& names = spec.names;
  const std::string prefix = names.attention + ".";
  switch (spec.qk_norm) {
    case nn::QkNorm::none:
      break;
    case nn::QkNorm::per_head:
    case nn::QkNorm::whole_width:
      return {
          norm_weights(
              parameters,
              prefix + (of_keys ? names.k_norm : names.q_norm) + ".",
              spec.norm),
          spec.qk_norm == nn::QkNorm::whole_width};
    case nn::QkNorm::layer_per_head: {
      nn::NormSpec layer{.kind = nn::NormSpec::Kind::layer};
      layer.eps = spec.norm.eps;
      return {norm_weights(
          parameters,
          prefix + (of_keys ? "k_layernorm." : "q_layernorm."),
          layer)};
    }
  }
  return {};
}

std::string describe(
    nn::TransformerBlock& block,
    kernels::DecoderLayerWeights& layer) {
  const nn::LayerSpec& spec = block.spec();
  if (!block.has_mlp()) {
    return "its network is not an MLP";
  }
  const nn::LayerNames& names = spec.names;
  Parameters parameters(block);
  auto norm = [&](const std::string& name) {
    return name.empty() ? kernels::NormWeights{}
                        : norm_weights(parameters, name + ".", spec.norm);
  };
  auto projection = [&](const std::string& name) {
    return parameters.linear(names.attention + "." + name);
  };
  layer.before_attention = norm(names.before_attention);
  layer.q = projection(names.q);
  layer.k = projection(names.k);
  layer.v = projection(names.v);
  layer.o = projection(names.o);
  layer.q_norm = head_norm(parameters, false, spec);
  layer.k_norm = head_norm(parameters, true, spec);
  layer.query_scale = {spec.query_scale.beta, spec.query_scale.original_length};
  layer.attention_scale = spec.attention_scale;
  layer.softcap = spec.softcap;
  if (spec.sinks) {
    layer.sinks = parameters.vector(names.attention + ".sinks");
  }
  layer.window = spec.window;
  layer.after_attention = norm(names.after_attention);
  layer.parallel = spec.parallel;
  layer.before_mlp =
      spec.parallel ? layer.before_attention : norm(names.before_mlp);
  if (!names.gate.empty()) {
    layer.gate = parameters.linear(names.mlp + "." + names.gate);
  }
  layer.up = parameters.linear(names.mlp + "." + names.up);
  layer.down = parameters.linear(names.mlp + "." + names.down);
  layer.activation = spec.activation;
  layer.after_mlp = norm(names.after_mlp);
  layer.residual_multiplier = spec.residual_multiplier;
  return parameters.problem();
}

// The tables of all layers, each once.
class Rotations {
 public:
  // Sets the layer's; empty, or why there is none.
  std::string add(
      const std::shared_ptr<const nn::Rope>& rope,
      kernels::DecoderWeights& weights) {
    auto& layer = weights.layers.back();
    if (!rope) {
      layer.rotation = -1;
      return {};
    }
    auto [at, is_new] =
        known_.emplace(rope, static_cast<int>(weights.rotations.size()));
    layer.rotation = at->second;
    if (is_new) {
      auto rotations = rope->rotations();
      if (!rotations) {
        return fmt::format("rope '{}' depends on the length", rope->name());
      }
      weights.rotations.push_back(
          {std::move(rotations->per_position),
           rotations->scale,
           rotations->pairs});
    }
    return {};
  }

 private:
  std::map<std::shared_ptr<const nn::Rope>, int> known_;
};

float embedding_multiplier(const DecoderSpec& spec) {
  if (spec.multiplier_rounding == MultiplierRounding::none) {
    return spec.embedding_multiplier;
  }
  return mx::astype(
             mx::array(spec.embedding_multiplier, mx::bfloat16),
             mx::float32)
      .item<float>();
}

std::string describe_ends(
    const FusedDecoder::Parts& parts,
    kernels::DecoderWeights& weights) {
  const DecoderSpec& spec = parts.spec;
  Parameters embedding(parts.embedding);
  weights.embedding = embedding.matrix("weight");
  weights.head = {weights.embedding, {}};
  if (!embedding.problem().empty()) {
    return "the embedding's " + embedding.problem();
  }
  if (spec.learned_positions > 0 && !parts.positions) {
    return "its table of positions was not given";
  }
  if (parts.positions) {
    Parameters positions(*parts.positions);
    weights.positions = positions.matrix("weight");
    if (!positions.problem().empty()) {
      return "the positions' " + positions.problem();
    }
  }
  Parameters norm(parts.norm);
  weights.final_norm = norm_weights(norm, "", spec.final_norm);
  if (parts.head) {
    Parameters head(*parts.head);
    weights.head = {head.matrix("weight"), head.vector("bias")};
    if (!head.problem().empty()) {
      return "the head's " + head.problem();
    }
  }
  weights.embedding_multiplier = embedding_multiplier(spec);
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
  Rotations rotations;
  for (auto* block : parts.blocks) {
    problem = describe(*block, weights.layers.emplace_back());
    if (problem.empty()) {
      problem = rotations.add(block->spec().rope, weights);
    }
    if (!problem.empty()) {
      return problem;
    }
  }
  return kernels::why_not_run(weights);
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
