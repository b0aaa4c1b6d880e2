#include "mlxx/capi/chat_request.h"

#include <nlohmann/json.hpp>

#include "mlxx/capi/argument_checks.h"
#include "mlxx/capi/sized_struct.h"
#include "mlxx/generate/chat_prompt.h"

namespace mlxx::capi {

namespace {

struct ChatRequest {
  OrderedJson messages;
  OrderedJson tools;  // null: none
  text::RenderOptions render;
};

// As parse_ordered_json(), whose bad_file is the caller's request here.
OrderedJson parse_argument(const char* text, const char* name) {
  try {
    return parse_ordered_json(text, name);
  } catch (const Error& error) {
    throw Error(ErrorKind::invalid_request, error.what());
  }
}

ChatRequest read_chat(const mlxx_chat* chat) {
  constexpr const char* kPlace = "mlxx_chat";
  require_pointer(chat, kPlace, "chat");
  const auto given = read_struct<mlxx_chat>(chat, MLXX_CHAT_INIT, kPlace);
  require_pointer(given.messages, kPlace, "messages");
  ChatRequest request;
  request.messages = parse_argument(given.messages, "messages");
  if (given.tools) {
    request.tools = parse_argument(given.tools, "tools");
  }
  if (given.variables) {
    if (!parse_argument(given.variables, "variables").is_object()) {
      fail(
          ErrorKind::invalid_request,
          "variables",
          "must be a JSON object, such as {{\"enable_thinking\": false}}");
    }
    request.render.extra_json = given.variables;
  }
  request.render.continue_final_message =
      read_flag(given.continue_final_message, "continue_final_message");
  request.render.add_generation_prompt =
      !read_flag(given.no_generation_prompt, "no_generation_prompt");
  return request;
}

}  // namespace

std::string render_chat(
    const generate::Pipeline& pipeline,
    const mlxx_chat* chat) {
  const ChatRequest request = read_chat(chat);
  return generate::render_chat_prompt(
      pipeline,
      request.messages,
      request.tools,
      request.render);
}

std::vector<int32_t> encode_chat(
    const generate::Pipeline& pipeline,
    const mlxx_chat* chat) {
  const ChatRequest request = read_chat(chat);
  return generate::encode_chat_prompt(
      pipeline,
      request.messages,
      request.tools,
      request.render);
}

}  // namespace mlxx::capi
