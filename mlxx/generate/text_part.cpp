#include "mlxx/generate/text_part.h"

#include <chrono>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"

namespace mlxx::generate {

namespace {

// Null, with the reason in `error`, if the source does not compile.
std::shared_ptr<const text::ChatTemplate> try_compile(
    const std::string& source,
    const text::SpecialTokens& special,
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
    const TextOptions& options,
    TextPart& part) {
  if (options.chat_template) {
    part.chat_template_source = *options.chat_template;
    part.chat_template = text::ChatTemplate::compile(
        part.chat_template_source,
        part.special.bos,
        part.special.eos);
    return;
  }
  const std::string* source =
      text::select_chat_template(files.chat_templates, /*has_tools=*/false);
  if (source) {
    part.chat_template_source = *source;
    part.chat_template =
        try_compile(*source, part.special, part.chat_template_error);
  }
  const std::string* for_tools =
      text::select_chat_template(files.chat_templates, /*has_tools=*/true);
  if (for_tools && for_tools != source) {
    part.tool_template_source = *for_tools;
    part.tool_template =
        try_compile(*for_tools, part.special, part.tool_template_error);
  }
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

TextPart load_text_part(
    const hub::Checkpoint& checkpoint,
    const TextOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
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
  part.special = text::read_special_tokens(files.tokenizer_config_json);
  part.bos_id = find_token(*part.tokenizer, part.special.bos, "bos_token");
  part.eos_id = find_token(*part.tokenizer, part.special.eos, "eos_token");
  compile_templates(files, options, part);
  part.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return part;
}

std::set<int32_t> eos_ids_of(
    const TextPart& part,
    const hub::Checkpoint& checkpoint,
    const std::vector<std::string>& more,
    int vocab_size) {
  std::set<int32_t> ids = text::read_eos_ids(
      checkpoint.config(),
      checkpoint.generation_config(),
      vocab_size);
  const auto& tokenizer = *part.tokenizer;
  if (part.eos_id) {
    ids.insert(*part.eos_id);
  }
  for (const std::string& token : more) {
    auto id = tokenizer.token_to_id(token);
    if (!id) {
      fail(
          ErrorKind::not_found,
          "extra_eos_tokens",
          "the vocabulary has no token \"{}\"",
          token);
    }
    ids.insert(*id);
  }
  return ids;
}

}  // namespace mlxx::generate
