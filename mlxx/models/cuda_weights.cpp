#include "mlxx/models/cuda_weights.h"

#include <algorithm>
#include <map>

#include "mlxx/core/memory.h"
#include "mlxx/kernels/cuda_plugin/cuda_packed.h"

namespace mlxx::models {
namespace {

namespace cuda = kernels::cuda;

// The parameters of a module by their names within it.
class NamedParameters {
 public:
  template <typename Module>
  explicit NamedParameters(Module& module) {
    module.visit("", [&](const std::string& name, Parameter& parameter) {
      all_.emplace(name.substr(1), &parameter);
    });
  }

  Parameter* find(const std::string& name) const {
    auto found = all_.find(name);
    return found == all_.end() ? nullptr : found->second;
  }
  Parameter* take(const std::string& name) {
    auto node = all_.extract(name);
    return node ? node.mapped() : nullptr;
  }
  // The first that nobody took.
  std::string left() const {
    return all_.empty() ? std::string() : all_.begin()->first;
  }

 private:
  std::map<std::string, Parameter*> all_;
};

// A part of a packed matrix.
struct Part {
  std::string name;  // without ".weight"; empty: the module itself
  cuda::RowOrder order = cuda::RowOrder::plain;
};

// Describes a decoder, either to see whether it can run, with addresses that
// nobody follows, or for good.
class Describer {
 public:
  Describer(const kernels::CudaPlugin& plugin, bool packs)
      : plugin_(plugin), packs_(packs) {}

  CudaWeights describe(const FusedDecoder::Parts& parts);
  const std::string& problem() const {
    return problem_;
  }

 private:
  void set_problem(std::string problem) {
    if (problem_.empty()) {
      problem_ = std::move(problem);
    }
  }
  const float* vector(mx::array values);
  const float*
  vector(NamedParameters& from, const std::string& name, bool plus_one = false);
  // Of a bias of each part, in packed order; null if no part has one.
  const float* bias(
      const std::vector<Part>& parts,
      const std::vector<Parameter*>& matrices,
      const std::vector<Parameter*>& biases);
  bool is_one(NamedParameters& from, const std::vector<std::string>& names);
  cuda::Linear linear(NamedParameters& from, const std::vector<Part>& parts);
  cuda::PackedMatrix matrix(
      const std::vector<Part>& parts,
      const std::vector<Parameter*>& matrices);
  cuda::Norm norm(
      NamedParameters& from,
      const std::string& prefix,
      const nn::NormSpec& spec);
  cuda::HeadNorm
  head_norm(NamedParameters& from, const nn::LayerSpec& spec, bool of_keys);
  int rotation(const nn::Rope* rope);
  cuda::DecoderLayer layer(nn::TransformerBlock& block);
  void attention(
      NamedParameters& from,
      const nn::LayerSpec& spec,
      cuda::DecoderLayer& layer);
  void ends(const FusedDecoder::Parts& parts);

  const kernels::CudaPlugin& plugin_;
  bool packs_;
  std::string problem_;
  CudaWeights weights_;
  std::vector<nn::Rotations> known_rotations_;
};

// Something that is not null, where only that counts.
template <typename T>
T* some_address() {
  return reinterpret_cast<T*>(uintptr_t{256});
}

const float* Describer::vector(mx::array values) {
  if (!packs_) {
    return some_address<float>();
  }
  // A sum, so that nobody else has this memory.
  mx::array own =
      mx::add(mx::contiguous(mx::astype(values, mx::float32)), mx::array(0.0f));
  mx::eval(own);
  weights_.held.push_back(own);
  return static_cast<const float*>(plugin_.device_pointer(own));
}

const float* Describer::vector(
    NamedParameters& from,
    const std::string& name,
    bool plus_one) {
  Parameter* parameter = from.take(name);
  if (!parameter) {
    return nullptr;
  }
  mx::array values = parameter->value();
  if (plus_one) {
    values = mx::add(mx::array(1.0f, values.dtype()), values);
  }
  return vector(std::move(values));
}

const float* Describer::bias(
    const std::vector<Part>& parts,
    const std::vector<Parameter*>& matrices,
    const std::vector<Parameter*>& biases) {
  if (std::ranges::all_of(biases, [](auto* bias) { return !bias; })) {
    return nullptr;
  }
  std::vector<mx::array> values;
  for (size_t i = 0; i < parts.size(); ++i) {
    values.push_back(
        biases[i] ? mx::astype(biases[i]->value(), mx::float32)
                  : mx::zeros({matrices[i]->shape()[0]}, mx::float32));
  }
  if (parts.front().order == cuda::RowOrder::plain) {
    return vector(mx::concatenate(values));
  }
  for (mx::array& part : values) {
    part = mx::reshape(part, {-1, 8});
  }
  return vector(mx::flatten(mx::stack(values, 1)));
}

cuda::PackedMatrix Describer::matrix(
    const std::vector<Part>& parts,
    const std::vector<Parameter*>& matrices) {
  cuda::PackedMatrix form;
  int rows = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string why;
    auto found = kernels::cuda_form(*matrices[i], why);
    if (!found) {
      set_problem(fmt::format("{}: {}", parts[i].name, why));
      return {};
    }
    form = *found;
    rows += found->rows;
  }
  form.rows = rows;
  if (!packs_) {
    form.codes = some_address<void>();
    form.scales =
        form.format == cuda::WeightFormat::bfloat16 ? nullptr : form.codes;
    return form;
  }
  auto whole =
      std::make_shared<const kernels::CudaMatrix>(plugin_.make_matrix(form));
  int first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Parameter& parameter = *matrices[i];
    int count = parameter.shape()[0];
    bool plain = parts[i].order == cuda::RowOrder::plain;
    int at = plain ? first : 0;
    plugin_.pack(parameter.restore(), count, *whole, parts[i].order, at);
    parameter.set_packed(
        std::make_shared<kernels::CudaPacked>(
            plugin_,
            whole,
            parts[i].order,
            at,
            count,
            parameter.quantization()),
        parameter.quantization());
    first += count;
  }
  weights_.held.push_back(whole->codes);
  if (whole->scales) {
    weights_.held.push_back(*whole->scales);
  }
  return whole->matrix;
}

cuda::Linear Describer::linear(
    NamedParameters& from,
    const std::vector<Part>& parts) {
  std::vector<Parameter*> matrices;
  std::vector<Parameter*> biases;
  for (const Part& part : parts) {
    std::string prefix = part.name.empty() ? "" : part.name + ".";
    matrices.push_back(from.take(prefix + "weight"));
    biases.push_back(from.take(prefix + "bias"));
    if (!matrices.back()) {
      set_problem(fmt::format("{} is not there", part.name));
      return {};
    }
  }
  return {matrix(parts, matrices), bias(parts, matrices, biases)};
}

cuda::Norm Describer::norm(
    NamedParameters& from,
    const std::string& prefix,
    const nn::NormSpec& spec) {
  using Kind = nn::NormSpec::Kind;
  bool plus_one =
      spec.kind == Kind::rms_plus_one || spec.kind == Kind::layer_plus_one;
  bool rms = spec.kind == Kind::rms || spec.kind == Kind::rms_plus_one;
  return {
      .kind = rms ? cuda::Norm::Kind::rms : cuda::Norm::Kind::layer,
      .eps = spec.eps,
      .weight = vector(from, prefix + "weight", plus_one),
      .bias = vector(from, prefix + "bias")};
}

cuda::HeadNorm Describer::head_norm(
    NamedParameters& from,
    const nn::LayerSpec& spec,
    bool of_keys) {
  if (spec.qk_norm == nn::QkNorm::none) {
    return {};
  }
  if (spec.qk_norm != nn::QkNorm::per_head) {
    set_problem("queries and keys are normed in a way that it does not know");
    return {};
  }
  const std::string& name = of_keys ? spec.names.k_norm : spec.names.q_norm;
  cuda::Norm norm =
      this->norm(from, spec.names.attention + "." + name + ".", spec.norm);
  if (norm.kind != cuda::Norm::Kind::rms || norm.bias) {
    set_problem("heads are normed, but not by the mean of squares");
  }
  return {.weight = norm.weight, .eps = norm.eps};
}

int Describer::rotation(const nn::Rope* rope) {
  if (!rope) {
    return -1;
  }
  auto rotations = rope->rotations();
  if (!rotations) {
    set_problem(fmt::format("rope '{}' depends on the length", rope->name()));
    return -1;
  }
  auto same = std::ranges::find_if(known_rotations_, [&](const auto& other) {
    return other.per_position == rotations->per_position &&
        other.scale == rotations->scale && other.pairs == rotations->pairs;
  });
  int index = static_cast<int>(same - known_rotations_.begin());
  if (same != known_rotations_.end()) {
    return index;
  }
  known_rotations_.push_back(*rotations);
  cuda::RotationTable table;
  table.dims = static_cast<int>(rotations->per_position.size() * 2);
  table.scale = static_cast<float>(rotations->scale);
  table.pairs = rotations->pairs;
  table.per_position = some_address<double>();
  if (packs_) {
    // Two words each: MLX has no double on a GPU.
    const auto& values = rotations->per_position;
    mx::array words(
        reinterpret_cast<const uint32_t*>(values.data()),
        {static_cast<int>(values.size() * 2)},
        mx::uint32);
    mx::array own = mx::bitwise_or(words, mx::array(0, mx::uint32));
    mx::eval(own);
    weights_.held.push_back(own);
    table.per_position =
        static_cast<const double*>(plugin_.device_pointer(own));
  }
  weights_.decoder.rotations.push_back(table);
  return index;
}

// Whether the parts can be rows of one matrix.
bool Describer::is_one(
    NamedParameters& from,
    const std::vector<std::string>& names) {
  std::optional<cuda::PackedMatrix> first;
  for (const auto& name : names) {
    Parameter* parameter = from.find(name + ".weight");
    std::string why;
    auto form = parameter ? kernels::cuda_form(*parameter, why) : std::nullopt;
    constexpr int kStrip = 16;
    if (!form || form->rows % kStrip != 0) {
      return false;
    }
    first = first ? first : form;
    if (form->format != first->format || form->group != first->group) {
      return false;
    }
  }
  return true;
}

void Describer::attention(
    NamedParameters& from,
    const nn::LayerSpec& spec,
    cuda::DecoderLayer& layer) {
  const nn::LayerNames& names = spec.names;
  auto named = [&](const std::string& name) {
    return names.attention + "." + name;
  };
  if (!names.before_attention.empty()) {
    layer.before_attention =
        norm(from, names.before_attention + ".", spec.norm);
  }
  if (is_one(from, {named(names.q), named(names.k), named(names.v)})) {
    layer.qkv =
        linear(from, {{named(names.q)}, {named(names.k)}, {named(names.v)}});
  } else {
    layer.q = linear(from, {{named(names.q)}});
    layer.k = linear(from, {{named(names.k)}});
    layer.v = linear(from, {{named(names.v)}});
  }
  layer.o = linear(from, {{named(names.o)}});
  layer.q_norm = head_norm(from, spec, false);
  layer.k_norm = head_norm(from, spec, true);
  layer.rotation = rotation(spec.rope.get());
  layer.query_beta = spec.query_scale.beta;
  layer.query_original_length = spec.query_scale.original_length;
  layer.attention_scale = spec.attention_scale;
  layer.softcap = spec.softcap;
  if (spec.sinks) {
    layer.sinks = vector(from, names.attention + ".sinks");
  }
  layer.window = spec.window;
  if (!names.after_attention.empty()) {
    layer.after_attention = norm(from, names.after_attention + ".", spec.norm);
  }
  layer.residual_multiplier = spec.residual_multiplier;
}

cuda::Activation activation_of(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::silu:
      return cuda::Activation::silu;
    case kernels::Activation::gelu:
      return cuda::Activation::gelu;
    case kernels::Activation::gelu_tanh:
      return cuda::Activation::gelu_tanh;
    case kernels::Activation::relu_squared:
      return cuda::Activation::relu_squared;
  }
  return cuda::Activation::silu;
}

cuda::DecoderLayer Describer::layer(nn::TransformerBlock& block) {
  cuda::DecoderLayer layer;
  if (!block.has_mlp()) {
    set_problem("a layer's network is not an MLP");
    return layer;
  }
  const nn::LayerSpec& spec = block.spec();
  const nn::LayerNames& names = spec.names;
  NamedParameters from(block);
  attention(from, spec, layer);
  layer.parallel = spec.parallel;
  if (spec.parallel) {
    layer.before_mlp = layer.before_attention;
  } else if (!names.before_mlp.empty()) {
    layer.before_mlp = norm(from, names.before_mlp + ".", spec.norm);
  }
  std::string up = names.mlp + "." + names.up;
  layer.gated = !names.gate.empty();
  if (layer.gated) {
    std::string gate = names.mlp + "." + names.gate;
    if (!is_one(from, {gate, up})) {
      set_problem("gate and up are of two forms, or no whole strips of rows");
      return layer;
    }
    layer.gate_up =
        linear(from, {{gate, cuda::RowOrder::gate}, {up, cuda::RowOrder::up}});
  } else {
    layer.gate_up = linear(from, {{up}});
  }
  layer.down = linear(from, {{names.mlp + "." + names.down}});
  layer.activation = activation_of(spec.activation);
  if (!names.after_mlp.empty()) {
    layer.after_mlp = norm(from, names.after_mlp + ".", spec.norm);
  }
  if (!from.left().empty()) {
    set_problem(fmt::format("{} has no place in it", from.left()));
  }
  return layer;
}

void Describer::ends(const FusedDecoder::Parts& parts) {
  const DecoderSpec& spec = parts.spec;
  cuda::Decoder& decoder = weights_.decoder;
  if (parts.positions || spec.learned_positions > 0) {
    set_problem("positions are learned");
    return;
  }
  NamedParameters embedding(parts.embedding);
  decoder.embedding = linear(embedding, {{""}}).matrix;
  decoder.embedding_multiplier = FusedDecoder::embedding_multiplier(spec);
  NamedParameters norm_parameters(parts.norm);
  decoder.final_norm = norm(norm_parameters, "", spec.final_norm);
  decoder.head = {decoder.embedding, nullptr};
  if (parts.head) {
    NamedParameters head(*parts.head);
    decoder.head = linear(head, {{""}});
  }
  decoder.logits_multiplier =
      spec.logits_multiplier / (spec.logits_divisor * spec.head_input_divisor);
  decoder.final_softcap = spec.final_softcap;
}

CudaWeights Describer::describe(const FusedDecoder::Parts& parts) {
  if (parts.blocks.empty()) {
    set_problem("there is no layer");
    return {};
  }
  const nn::LayerSpec& first = parts.blocks.front()->spec();
  cuda::Decoder& decoder = weights_.decoder;
  decoder.hidden_size = first.hidden_size;
  decoder.heads = first.heads;
  decoder.kv_heads = first.kv_heads;
  decoder.head_size = first.head_size;
  for (nn::TransformerBlock* block : parts.blocks) {
    const nn::LayerSpec& spec = block->spec();
    if (spec.heads != first.heads || spec.kv_heads != first.kv_heads ||
        spec.head_size != first.head_size) {
      set_problem("heads of the layers differ");
    }
    decoder.layers.push_back(layer(*block));
    if (packs_) {
      clear_cache();  // MLX's form of it
    }
  }
  ends(parts);
  if (problem_.empty()) {
    set_problem(plugin_.why_not_run(decoder));
  }
  return std::move(weights_);
}

}  // namespace

std::string why_not_on_cuda(
    const FusedDecoder::Parts& parts,
    const kernels::CudaPlugin& plugin) {
  Describer describer(plugin, false);
  describer.describe(parts);
  return describer.problem();
}

CudaWeights pack_for_cuda(
    const FusedDecoder::Parts& parts,
    const kernels::CudaPlugin& plugin) {
  Describer describer(plugin, true);
  CudaWeights weights = describer.describe(parts);
  if (!describer.problem().empty()) {
    fail(ErrorKind::internal, "decode step", "{}", describer.problem());
  }
  return weights;
}

}  // namespace mlxx::models
