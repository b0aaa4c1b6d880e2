#include "mlxx/generate/pipeline.h"

#include <chrono>
#include <future>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/generate/special_tokens.h"

namespace mlxx::generate {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What is made from the checkpoint's texts, without MLX and thus on a thread
// of its own.
struct TextPart {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  std::string chat_template_error;
  std::shared_ptr<const text::ChatTemplate> tool_template;
  std::string tool_template_error;
  SpecialTokens special;
  double seconds = 0;
};

// Null, with the reason in `error`, if the source does not compile.
std::shared_ptr<const text::ChatTemplate> try_compile(
    const std::string& source,
    const SpecialTokens& special,
    std::string& error) {
  try {
    return text::ChatTemplate::compile(source, special.bos, special.eos);
  } catch (const Error& failure) {
    error = failure.what();
    log_warning("a chat template cannot be used: {}", failure.what());
    return nullptr;
  }
}

void compile_templates(
    const hub::TextFiles& files,
    const PipelineOptions& options,
    TextPart& part) {
  if (options.chat_template) {
    part.chat_template = text::ChatTemplate::compile(
        *options.chat_template,
        part.special.bos,
        part.special.eos);
    return;
  }
  const std::string* source =
      text::select_chat_template(files.chat_templates, /*has_tools=*/false);
  if (source) {
    part.chat_template =
        try_compile(*source, part.special, part.chat_template_error);
  }
  const std::string* for_tools =
      text::select_chat_template(files.chat_templates, /*has_tools=*/true);
  if (for_tools && for_tools != source) {
    part.tool_template =
        try_compile(*for_tools, part.special, part.tool_template_error);
  }
}

TextPart load_text(
    const hub::Checkpoint& checkpoint,
    const PipelineOptions& options) {
  auto start = Clock::now();
  TextPart part;
  if (options.tokenizer_cache) {
    part.tokenizer = options.tokenizer_cache->load(
        checkpoint.tokenizer_digest(),
        [&]() -> std::string_view { return checkpoint.text().tokenizer_json; });
  } else {
    part.tokenizer =
        text::Tokenizer::from_json(checkpoint.text().tokenizer_json);
  }
  const hub::TextFiles& files = checkpoint.text_beside_tokenizer();
  part.special = read_special_tokens(files.tokenizer_config_json);
  compile_templates(files, options, part);
  part.seconds = seconds_since(start);
  return part;
}

std::optional<int32_t> find_token(
    const text::Tokenizer& tokenizer,
    const std::string& token,
    const char* key) {
  if (token.empty()) {
    return std::nullopt;
  }
  auto id = tokenizer.token_to_id(token);
  if (!id) {
    log_warning("{} \"{}\" is not in the vocabulary", key, token);
  }
  return id;
}

}  // namespace

Pipeline load_pipeline(
    std::shared_ptr<const hub::Checkpoint> checkpoint,
    const PipelineOptions& options) {
  if (options.context_length < 0) {
    fail(
        ErrorKind::invalid_request,
        "context_length",
        "must be at least 0, got {}",
        options.context_length);
  }
  // Without a free thread this runs in get() below.
  auto text_part = std::async(std::launch::async | std::launch::deferred, [&] {
    return load_text(*checkpoint, options);
  });

  Pipeline pipeline;
  auto start = Clock::now();
  models::LoadOptions load_options;
  load_options.kernels = options.kernels;
  load_options.progress = options.progress;
  pipeline.model = models::load_model(*checkpoint, load_options);
  pipeline.weights_seconds = seconds_since(start);

  TextPart part = text_part.get();
  pipeline.tokenizer = std::move(part.tokenizer);
  pipeline.chat_template = std::move(part.chat_template);
  pipeline.chat_template_error = std::move(part.chat_template_error);
  pipeline.tool_template = std::move(part.tool_template);
  pipeline.tool_template_error = std::move(part.tool_template_error);
  pipeline.tokenizer_seconds = part.seconds;

  const auto summary = pipeline.model->summary();
  pipeline.context_length = options.context_length > 0
      ? options.context_length
      : summary.max_position_embeddings;
  pipeline.eos_ids = read_eos_ids(
      checkpoint->config(),
      checkpoint->generation_config(),
      summary.vocab_size);
  const auto& tokenizer = *pipeline.tokenizer;
  if (tokenizer.vocab_size() > summary.vocab_size) {
    log_warning(
        "the tokenizer has {} tokens, the model only {}: prompts that use the "
        "others will be refused",
        tokenizer.vocab_size(),
        summary.vocab_size);
  }
  if (auto id = find_token(tokenizer, part.special.eos, "eos_token")) {
    pipeline.eos_ids.insert(*id);
  }
  for (const std::string& token : options.extra_eos_tokens) {
    auto id = tokenizer.token_to_id(token);
    if (!id) {
      fail(
          ErrorKind::not_found,
          "extra_eos_tokens",
          "the vocabulary has no token \"{}\"",
          token);
    }
    pipeline.eos_ids.insert(*id);
  }
  pipeline.bos_id = find_token(tokenizer, part.special.bos, "bos_token");
  pipeline.add_bos = part.special.add_bos;
  pipeline.checkpoint = std::move(checkpoint);
  return pipeline;
}

std::vector<int32_t> encode_raw_prompt(
    const Pipeline& pipeline,
    std::string_view text) {
  const auto& tokenizer = *pipeline.tokenizer;
  auto ids = tokenizer.encode(
      text,
      {.add_special_tokens = true, .parse_special = true});
  if (!pipeline.bos_id) {
    return ids;
  }
  bool text_has_bos = text.starts_with(tokenizer.id_to_token(*pipeline.bos_id));
  return with_single_bos(
      std::move(ids),
      pipeline.bos_id,
      pipeline.add_bos,
      text_has_bos);
}

}  // namespace mlxx::generate
