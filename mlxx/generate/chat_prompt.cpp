#include "mlxx/generate/chat_prompt.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::generate {

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

const text::ChatTemplate& template_for(
    const Pipeline& pipeline,
    bool with_tools) {
  const auto& chosen = with_tools &&
          (pipeline.tool_template || !pipeline.tool_template_error.empty())
      ? pipeline.tool_template
      : pipeline.chat_template;
  if (chosen) {
    return *chosen;
  }
  const std::string& error = with_tools && !pipeline.tool_template_error.empty()
      ? pipeline.tool_template_error
      : pipeline.chat_template_error;
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

text::RenderOptions checked(
    const OrderedJson& messages,
    const text::RenderOptions& options) {
  if (!messages.is_array() || messages.empty()) {
    fail(kInvalid, "messages", "must be a list of at least one message");
  }
  text::RenderOptions render = options;
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

std::vector<int32_t> encode_chat_prompt(
    const Pipeline& pipeline,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const text::RenderOptions& options) {
  const bool with_tools = has_tools(tools);
  const auto& chosen = template_for(pipeline, with_tools);
  return chosen.encode(
      *pipeline.tokenizer,
      messages,
      with_tools ? tools : OrderedJson(),
      checked(messages, options));
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
  const bool with_tools = has_tools(tools);
  const auto& chosen = template_for(pipeline, with_tools);
  return chosen.render(
      messages,
      with_tools ? tools : OrderedJson(),
      checked(messages, options));
}

}  // namespace mlxx::generate
