#include "mlxx/text/message_shape.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::text {

namespace {

// Not in any template; the argument's value is what is looked for.
constexpr const char* kNeedle = "needle7c1f";

OrderedJson text_parts(const std::string& text) {
  OrderedJson part = {{"type", "text"}, {"text", text}};
  return OrderedJson::array({std::move(part)});
}

bool holds(const std::string& text, const std::string& wanted) {
  return text.find(wanted) != std::string::npos;
}

}  // namespace

MessageShape find_message_shape(
    const std::function<std::string(const OrderedJson& messages)>& render) {
  auto try_render = [&](const OrderedJson& messages) -> std::string {
    try {
      return render(messages);
    } catch (const Error&) {
      return "";  // this form is not for the template
    }
  };

  MessageShape shape;
  OrderedJson user = {{"role", "user"}, {"content", kNeedle}};
  if (!holds(try_render(OrderedJson::array({user})), kNeedle)) {
    user["content"] = text_parts(kNeedle);
    shape.text_parts = holds(try_render(OrderedJson::array({user})), kNeedle);
  }

  auto call = [&](OrderedJson arguments) {
    OrderedJson function = {{"name", "f"}, {"arguments", std::move(arguments)}};
    OrderedJson tool_call = {
        {"id", "call00000"},
        {"type", "function"},
        {"function", std::move(function)}};
    OrderedJson assistant = {
        {"role", "assistant"},
        {"content", shape.text_parts ? text_parts("") : OrderedJson("")},
        {"tool_calls", OrderedJson::array({std::move(tool_call)})}};
    return OrderedJson::array({user, std::move(assistant)});
  };
  // Printed as Python would ('a': 'b') an object is of no use to a model.
  std::string as_json = fmt::format("\"{}\"", kNeedle);
  std::string as_python = fmt::format("'{}'", kNeedle);
  OrderedJson object = {{"a", kNeedle}};
  std::string with_object = try_render(call(object));
  if (holds(with_object, kNeedle) && !holds(with_object, as_python)) {
    return shape;
  }
  std::string with_string = try_render(call(object.dump()));
  shape.string_arguments = holds(with_string, as_json);
  return shape;
}

OrderedJson reshape_messages(OrderedJson messages, const MessageShape& shape) {
  for (OrderedJson& message : messages) {
    if (shape.text_parts && message["content"].is_string()) {
      message["content"] = text_parts(message["content"].get<std::string>());
    }
    if (!shape.string_arguments || !message.contains("tool_calls") ||
        !message["tool_calls"].is_array()) {
      continue;
    }
    for (OrderedJson& call : message["tool_calls"]) {
      OrderedJson& function =
          call.contains("function") && call["function"].is_object()
          ? call["function"]
          : call;
      if (function.contains("arguments") && function["arguments"].is_object()) {
        function["arguments"] = function["arguments"].dump();
      }
    }
  }
  return messages;
}

}  // namespace mlxx::text
