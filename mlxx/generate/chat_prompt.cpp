#include "mlxx/generate/chat_prompt.h"

#include <nlohmann/json.hpp>

#include "mlxx/text/prompt_encoding.h"

namespace mlxx::generate {

namespace {

text::PromptParts parts_of(const Pipeline& pipeline) {
  return {
      *pipeline.tokenizer,
      pipeline.chat_template.get(),
      pipeline.chat_template_error,
      pipeline.tool_template.get(),
      pipeline.tool_template_error,
      pipeline.bos_id,
      pipeline.add_bos};
}

}  // namespace

std::vector<int32_t> encode_raw_prompt(
    const Pipeline& pipeline,
    std::string_view text) {
  return text::encode_raw_prompt(parts_of(pipeline), text);
}

std::vector<int32_t> encode_chat_prompt(
    const Pipeline& pipeline,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options) {
  return text::encode_chat_prompt(parts_of(pipeline), messages, tools, options);
}

std::vector<int32_t> encode_chat_prompt(
    const Pipeline& pipeline,
    const OrderedJson& messages,
    const text::RenderOptions& options) {
  return encode_chat_prompt(pipeline, messages, OrderedJson(), options);
}

std::string render_chat_prompt(
    const Pipeline& pipeline,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options) {
  return text::render_chat_prompt(parts_of(pipeline), messages, tools, options);
}

}  // namespace mlxx::generate
