#include "mlxx/embed/encoder.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/core/compile.h"
#include "mlxx/embed/encoder_kinds.h"
#include "mlxx/models/load_weights.h"

namespace mlxx::embed {
namespace {

using Make =
    std::unique_ptr<Encoder> (*)(const hub::Checkpoint&, EncoderPurpose);

struct Kind {
  std::string_view model_type;
  Make make;
};

constexpr Kind kKinds[] = {
    {"bert", make_bert},
    {"roberta", make_bert},
    {"xlm-roberta", make_bert},
    {"modernbert", make_modern_bert},
    {"qwen3", make_decoder_encoder},
    {"gemma3_text", make_decoder_encoder},
    {"qwen2", make_decoder_encoder},
    {"llama", make_decoder_encoder},
    {"mistral", make_decoder_encoder},
};

Make find_kind(const std::string& model_type) {
  std::vector<std::string_view> known;
  for (const auto& kind : kKinds) {
    if (kind.model_type == model_type) {
      return kind.make;
    }
    known.push_back(kind.model_type);
  }
  fail(
      ErrorKind::unsupported,
      "config.json",
      "model_type '{}' is no encoder that is known: {}",
      model_type,
      fmt::join(known, ", "));
}

}  // namespace

bool is_encoder(std::string_view model_type) {
  return std::ranges::any_of(kKinds, [&](const Kind& kind) {
    return kind.model_type == model_type && kind.make != make_decoder_encoder;
  });
}

mx::array Encoder::classify(const mx::array&, const TokenRows&) const {
  fail(
      ErrorKind::unsupported,
      summary().model_type,
      "the model has no classification head");
}

std::shared_ptr<const Encoder> load_encoder(
    const hub::Checkpoint& checkpoint,
    EncoderPurpose purpose,
    const models::LoadOptions& options) {
  apply_compile_mode();
  kernels::Selection selection =
      options.kernels ? *options.kernels : kernels::select_from_environment();
  JsonView config(checkpoint.config(), "config.json");
  std::shared_ptr<Encoder> encoder =
      find_kind(config.string("model_type"))(checkpoint, purpose);
  models::load_weights(
      checkpoint,
      {encoder->summary().model_type,
       [&](const ParameterVisitor& visitor) { encoder->visit(visitor); },
       [&](const std::string& name) { return encoder->skips(name); }},
      selection,
      options);
  encoder->use(selection);
  return encoder;
}

bool has_prefix(const hub::Checkpoint& checkpoint, std::string_view prefix) {
  return std::ranges::any_of(checkpoint.tensors(), [&](const auto& tensor) {
    return tensor.name.starts_with(prefix);
  });
}

int read_labels(const JsonView& config) {
  constexpr int kMostLabels = 1 << 16;
  if (config.has("id2label")) {
    size_t count = config.object("id2label").json().size();
    if (count < 1 || count > kMostLabels) {
      config.fail_at("id2label", fmt::format("names {} labels", count));
    }
    return static_cast<int>(count);
  }
  return static_cast<int>(config.integer_or("num_labels", 2, 1, kMostLabels));
}

}  // namespace mlxx::embed
