#include "mlxx/text/prompt_encoding.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/special_tokens.h"

namespace mlxx::text {

namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;

bool has_tools(const OrderedJson& tools) {
  if (tools.is_null()) {
    return false;
  }
  if (!tools.is_array()) {
    fail(kInvalid, "tools", "must be a list, got {}", tools.type_name());
  }
  return !tools.empty();
}

const ChatTemplate& template_for(const PromptParts& parts, bool with_tools) {
  const auto* chosen =
      with_tools && (parts.tool_template || !parts.tool_template_error.empty())
      ? parts.tool_template
      : parts.chat_template;
  if (chosen) {
    return *chosen;
  }
  std::string_view error = with_tools && !parts.tool_template_error.empty()
      ? parts.tool_template_error
      : parts.chat_template_error;
  if (!error.empty()) {
    fail(
        ErrorKind::unsupported,
        "chat_template",
        "the model's chat template cannot be used: {}",
        error);
  }
  fail(
      kInvalid,
      "chat_template",
      "the model has no chat template: give one, or ask for a raw "
      "completion (--raw)");
}

RenderOptions checked(
    const OrderedJson& messages,
    const RenderOptions& options) {
  if (!messages.is_array() || messages.empty()) {
    fail(kInvalid, "messages", "must be a list of at least one message");
  }
  RenderOptions render = options;
  if (render.continue_final_message) {
    const auto& last = messages.back();
    if (!last.is_object() || last.value("role", OrderedJson()) != "assistant") {
      fail(
          kInvalid,
          "continue_final_message",
          "the last message must be the assistant's");
    }
    // The template would open a second answer after the one to continue.
    render.add_generation_prompt = false;
  }
  return render;
}

}  // namespace

std::vector<int32_t> encode_raw_prompt(
    const PromptParts& parts,
    std::string_view prompt) {
  auto ids = parts.tokenizer.encode(
      prompt,
      {.add_special_tokens = true, .parse_special = true});
  if (!parts.bos_id) {
    return ids;
  }
  const bool text_has_bos =
      prompt.starts_with(parts.tokenizer.id_to_token(*parts.bos_id));
  return with_single_bos(
      std::move(ids),
      parts.bos_id,
      parts.add_bos,
      text_has_bos);
}

std::vector<int32_t> encode_chat_prompt(
    const PromptParts& parts,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const RenderOptions& options) {
  const bool with_tools = has_tools(tools);
  const auto& chosen = template_for(parts, with_tools);
  return chosen.encode(
      parts.tokenizer,
      messages,
      with_tools ? tools : OrderedJson(),
      checked(messages, options));
}

std::string render_chat_prompt(
    const PromptParts& parts,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const RenderOptions& options) {
  const bool with_tools = has_tools(tools);
  const auto& chosen = template_for(parts, with_tools);
  return chosen.render(
      messages,
      with_tools ? tools : OrderedJson(),
      checked(messages, options));
}

}  // namespace mlxx::text
