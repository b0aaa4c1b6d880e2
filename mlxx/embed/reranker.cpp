#include "mlxx/embed/reranker.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/embed/sentence_modules.h"

namespace mlxx::embed {
namespace {

// sentence-transformers keeps the name of the function under one of two keys.
std::optional<std::string> activation_name(const JsonView& config) {
  constexpr auto kOldKey = "sbert_ce_default_activation_function";
  if (config.has("sentence_transformers")) {
    JsonView section = config.object("sentence_transformers");
    if (section.has("activation_fn")) {
      return section.string("activation_fn");
    }
  }
  return config.has(kOldKey) ? std::optional(config.string(kOldKey))
                             : std::nullopt;
}

bool reads_sigmoid(const JsonView& config, int labels) {
  auto name = activation_name(config);
  if (!name) {
    return labels == 1;
  }
  std::string function = name->substr(name->rfind('.') + 1);
  if (function != "Sigmoid" && function != "Identity") {
    fail(
        ErrorKind::unsupported,
        config.place(),
        "activation function '{}' is not Sigmoid or Identity",
        *name);
  }
  return function == "Sigmoid";
}

std::vector<std::string> read_label_names(const JsonView& config, int labels) {
  std::vector<std::string> names;
  if (config.has("id2label")) {
    JsonView list = config.object("id2label");
    for (int i = 0; i < labels; ++i) {
      names.push_back(list.string_or(fmt::format("{}", i), ""));
    }
  }
  return names;
}

}  // namespace

std::shared_ptr<const Reranker> Reranker::load(
    const std::filesystem::path& folder,
    const models::LoadOptions& options) {
  auto checkpoint = hub::open_checkpoint(folder);
  JsonView config(checkpoint->config(), "config.json");
  // Some of these models say in the same file what vectors' models do.
  SentenceModules modules;
  if (!std::filesystem::exists(folder / "modules.json")) {
    modules = read_sentence_modules(folder);
  }
  TextEncoder text = TextEncoder::load(
      checkpoint,
      EncoderPurpose::scores,
      {.max_tokens = modules.max_tokens, .lower_case = modules.lower_case},
      options);
  int labels = text.encoder().summary().labels;
  std::shared_ptr<Reranker> reranker(
      new Reranker(std::move(text), reads_sigmoid(config, labels)));
  reranker->label_names_ = read_label_names(config, labels);
  return reranker;
}

Reranker::Reranker(TextEncoder text, bool sigmoid)
    : text_(std::move(text)), sigmoid_(sigmoid) {}

Scores Reranker::score(
    const std::string& query,
    std::span<const std::string> documents,
    const RerankOptions& options) const {
  if (documents.empty()) {
    return {mx::zeros({0, labels()}, mx::float32), 0, {}};
  }
  std::vector<TextInput> pairs;
  for (const auto& document : documents) {
    pairs.push_back({query, document});
  }
  auto encoded = text_.encode(pairs, options.max_tokens);
  bool is_sigmoid = sigmoid_ && !options.raw_scores;
  mx::array values = text_.run(
      std::move(encoded.inputs),
      [&](const mx::array& hidden, const TokenRows& rows) {
        mx::array logits = text_.encoder().classify(hidden, rows);
        return is_sigmoid ? mx::sigmoid(logits) : logits;
      });
  return {values, encoded.tokens, std::move(encoded.dropped)};
}

}  // namespace mlxx::embed
