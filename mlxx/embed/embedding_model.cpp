#include "mlxx/embed/embedding_model.h"

#include <cmath>

#include <fmt/ranges.h>

#include "mlxx/base/error.h"
#include "mlxx/models/load_weights.h"
#include "mlxx/nn/linear.h"

namespace mlxx::embed {
namespace {

Pooling choose_pooling(const SentenceModules& modules, const Encoder& encoder) {
  return modules.pooling.value_or(encoder.summary().default_pooling);
}

// The first `width` numbers of each row, in double precision on the host, so
// that every backend gives the same.
mx::array cut_and_scale(const mx::array& vectors, int width, bool normalize) {
  int rows = vectors.shape(0);
  int size = vectors.shape(1);
  std::vector<float> out(static_cast<size_t>(rows) * width);
  for (int i = 0; i < rows; ++i) {
    const float* from = vectors.data<float>() + static_cast<size_t>(i) * size;
    float* to = out.data() + static_cast<size_t>(i) * width;
    double squares = 0;
    for (int j = 0; j < width; ++j) {
      squares += double{from[j]} * from[j];
    }
    double scale = normalize ? 1 / std::max(std::sqrt(squares), 1e-12) : 1;
    for (int j = 0; j < width; ++j) {
      to[j] = static_cast<float>(from[j] * scale);
    }
  }
  return mx::array(out.data(), {rows, width}, mx::float32);
}

}  // namespace

// A Dense module: linear, then perhaps tanh.
class EmbeddingModel::Projection {
 public:
  Projection(
      const std::filesystem::path& folder,
      const models::LoadOptions& options)
      : spec_(read_dense_module(folder)),
        linear_(spec_.in_features, spec_.out_features, spec_.bias) {
    auto checkpoint = hub::open_checkpoint(folder);
    models::load_weights(
        *checkpoint,
        {"Dense",
         [this](const ParameterVisitor& visitor) {
           linear_.visit("linear", visitor);
         },
         [](const std::string&) { return false; }},
        options.kernels ? *options.kernels : kernels::select_from_environment(),
        options);
  }

  const DenseModule& spec() const {
    return spec_;
  }
  // [N, in] -> [N, out]
  mx::array operator()(const mx::array& x) const {
    mx::array y = linear_(x);
    return spec_.tanh ? mx::tanh(y) : y;
  }

 private:
  DenseModule spec_;
  nn::Linear linear_;
};

std::shared_ptr<const EmbeddingModel> EmbeddingModel::load(
    const std::filesystem::path& folder,
    const models::LoadOptions& options) {
  SentenceModules modules = read_sentence_modules(folder);
  TextEncoder text = TextEncoder::load(
      hub::open_checkpoint(modules.transformer),
      EncoderPurpose::vectors,
      {.max_tokens = modules.max_tokens, .lower_case = modules.lower_case},
      options);
  std::shared_ptr<EmbeddingModel> model(
      new EmbeddingModel(std::move(modules), std::move(text)));
  auto check_width = [&](int expected, const std::filesystem::path& place) {
    if (expected != model->dimensions_) {
      fail(
          ErrorKind::bad_file,
          place.string(),
          "expects vectors of {} numbers, gets {}",
          expected,
          model->dimensions_);
    }
  };
  if (model->modules_.pooled_size > 0) {
    check_width(model->modules_.pooled_size, folder / "modules.json");
  }
  for (const auto& path : model->modules_.dense) {
    auto projection = std::make_shared<const Projection>(path, options);
    check_width(projection->spec().in_features, path);
    model->dimensions_ = projection->spec().out_features;
    model->projections_.push_back(std::move(projection));
  }
  return model;
}

EmbeddingModel::EmbeddingModel(SentenceModules modules, TextEncoder text)
    : modules_(std::move(modules)),
      text_(std::move(text)),
      pooling_(choose_pooling(modules_, text_.encoder())),
      dimensions_(text_.encoder().summary().hidden_size) {}

std::string EmbeddingModel::prompt_of(const EmbedOptions& options) const {
  if (options.prompt && options.prompt_name) {
    fail(
        ErrorKind::invalid_request,
        "prompt_name",
        "'{}' and a prompt of its own exclude each other",
        *options.prompt_name);
  }
  if (options.prompt) {
    return *options.prompt;
  }
  const auto& name =
      options.prompt_name ? options.prompt_name : modules_.default_prompt;
  if (!name) {
    return {};
  }
  std::vector<std::string> names;
  for (const auto& [known, prompt] : modules_.prompts) {
    if (known == *name) {
      return prompt;
    }
    names.push_back(known);
  }
  fail(
      ErrorKind::invalid_request,
      "prompt_name",
      "the model has no prompt '{}'{}{}",
      *name,
      names.empty() ? ", nor any other" : ", it has ",
      fmt::join(names, ", "));
}

mx::array EmbeddingModel::reduce(const mx::array& hidden, const TokenRows& rows)
    const {
  mx::array pooled = pool(hidden, rows, pooling_);
  for (const auto& projection : projections_) {
    pooled = (*projection)(pooled);
  }
  return pooled;
}

int EmbeddingModel::width_of(const EmbedOptions& options) const {
  if (options.dimensions < 0 || options.dimensions > dimensions_) {
    fail(
        ErrorKind::invalid_request,
        "dimensions",
        "is {}, the model gives 1 to {}",
        options.dimensions,
        dimensions_);
  }
  return options.dimensions > 0 ? options.dimensions : dimensions_;
}

Embeddings EmbeddingModel::vectors_of(
    TextEncoder::Encoded encoded,
    const EmbedOptions& options) const {
  const int width = width_of(options);
  if (encoded.inputs.empty()) {
    return {mx::zeros({0, width}, mx::float32), 0, {}};
  }
  mx::array vectors = text_.run(
      std::move(encoded.inputs),
      [this](const mx::array& hidden, const TokenRows& rows) {
        return reduce(hidden, rows);
      });
  return {
      cut_and_scale(vectors, width, options.normalize.value_or(normalizes())),
      encoded.tokens,
      std::move(encoded.dropped)};
}

Embeddings EmbeddingModel::embed(
    std::span<const std::string> texts,
    const EmbedOptions& options) const {
  width_of(options);
  std::string prompt = prompt_of(options);
  if (!prompt.empty() && !modules_.pools_prompt) {
    fail(
        ErrorKind::unsupported,
        "prompt",
        "include_prompt is false: this model's pooling would leave the prompt "
        "out, which is not implemented");
  }
  std::vector<std::string> prompted;
  std::vector<TextInput> inputs;
  if (!prompt.empty()) {
    for (const auto& text : texts) {
      prompted.push_back(prompt + text);
    }
    texts = prompted;
  }
  for (const auto& text : texts) {
    inputs.push_back({text});
  }
  return vectors_of(text_.encode(inputs, options.max_tokens), options);
}

Embeddings EmbeddingModel::embed_tokens(
    std::span<const std::vector<int32_t>> token_lists,
    const EmbedOptions& options) const {
  width_of(options);
  if (options.prompt || options.prompt_name) {
    fail(
        ErrorKind::invalid_request,
        "prompt",
        "goes before texts only, not before token ids");
  }
  return vectors_of(text_.take(token_lists), options);
}

}  // namespace mlxx::embed
