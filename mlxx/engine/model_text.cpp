#include "mlxx/engine/model_text.h"

#include "mlxx/base/error.h"
#include "mlxx/text/prompt_encoding.h"

namespace mlxx::engine {

namespace {

text::PromptParts parts_of(const ModelText& text) {
  if (!text.tokenizer) {
    fail(
        ErrorKind::unsupported,
        "tokenizer",
        "the model \"{}\" has no tokenizer",
        text.name);
  }
  return {
      *text.tokenizer,
      text.chat_template.get(),
      text.chat_template_error,
      text.tool_template.get(),
      text.tool_template_error,
      text.bos_id,
      text.add_bos};
}

}  // namespace

std::vector<int32_t> encode_raw(
    const ModelText& text,
    std::string_view prompt) {
  return text::encode_raw_prompt(parts_of(text), prompt);
}

std::vector<int32_t> encode_chat(
    const ModelText& text,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options) {
  return text::encode_chat_prompt(parts_of(text), messages, tools, options);
}

std::string render_chat(
    const ModelText& text,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options) {
  return text::render_chat_prompt(parts_of(text), messages, tools, options);
}

}  // namespace mlxx::engine
