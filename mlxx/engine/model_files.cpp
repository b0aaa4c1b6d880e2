#include "mlxx/engine/model_files.h"

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/embed/encoder.h"
#include "mlxx/embed/sentence_modules.h"
#include "mlxx/models/config_sizes.h"
#include "mlxx/models/registry.h"

namespace mlxx::engine {

namespace fs = std::filesystem;

int64_t unix_time_of(const fs::path& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  if (error) {
    return 0;
  }
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::file_clock::to_sys(written).time_since_epoch())
      .count();
}

namespace {

bool has_classification_head(const JsonView& config) {
  return std::ranges::any_of(
      config.strings_or_empty("architectures"),
      [](const std::string& name) {
        return name.ends_with("ForSequenceClassification");
      });
}

ModelUse use_of(const hub::Checkpoint& checkpoint, bool has_modules) {
  JsonView config(checkpoint.config(), "config.json");
  const std::string type = config.string("model_type");
  if (has_classification_head(config)) {
    return ModelUse::scores;
  }
  if (has_modules || embed::is_encoder(type)) {
    return ModelUse::vectors;
  }
  models::find_model(type);
  return ModelUse::answers;
}

}  // namespace

ModelFiles open_model_files(const fs::path& path) {
  ModelFiles files;
  files.path = path;
  files.created = unix_time_of(path);
  std::error_code ignored;
  const bool has_modules = fs::exists(path / "modules.json", ignored);
  files.checkpoint = hub::open_checkpoint(
      has_modules ? embed::read_sentence_modules(path).transformer : path);
  files.use = use_of(*files.checkpoint, has_modules);
  return files;
}

OpenedText read_model_text(
    const ModelFiles& files,
    const ModelTextOptions& options) {
  const hub::Checkpoint& checkpoint = *files.checkpoint;
  const auto sizes = models::read_config_sizes(checkpoint.config());
  auto part = std::make_shared<generate::TextPart>(generate::load_text_part(
      checkpoint,
      {options.chat_template, options.tokenizer_cache}));
  auto text = std::make_shared<ModelText>();
  text->name = options.name;
  text->model_type =
      JsonView(checkpoint.config(), "config.json").string("model_type");
  text->tokenizer = part->tokenizer;
  text->chat_template = part->chat_template;
  text->chat_template_error = part->chat_template_error;
  text->chat_template_source = part->chat_template_source;
  text->tool_template = part->tool_template;
  text->tool_template_error = part->tool_template_error;
  text->tool_template_source = part->tool_template_source;
  text->bos_id = part->bos_id;
  text->add_bos = part->special.add_bos;
  text->vocab_size = sizes.vocab_size;
  text->context_length = options.context_length > 0
      ? options.context_length
      : sizes.max_position_embeddings;
  text->is_embedding_model = files.use == ModelUse::vectors;
  text->is_reranker = files.use == ModelUse::scores;
  text->created = files.created;
  if (files.use == ModelUse::answers) {
    text->eos_ids = generate::eos_ids_of(
        *part,
        checkpoint,
        options.extra_eos_tokens,
        sizes.vocab_size);
    text->sampling =
        sampling_defaults(checkpoint.generation_config(), options.sampling);
  }
  return {std::move(text), std::move(part)};
}

}  // namespace mlxx::engine
