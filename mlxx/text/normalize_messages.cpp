#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/chat_template.h"

namespace mlxx::text {

namespace {

constexpr const char* kPlace = "messages";

// The names that a message's reasoning goes by; templates read the first, or
// gpt-oss's the second.
constexpr const char* kReasoning[] = {
    "reasoning_content",
    "thinking",
    "reasoning",
};

// Text parts joined; nullopt if there is a part that is not text, whose
// handling is the template's business.
std::optional<std::string> joined_text(const OrderedJson& parts) {
  std::string out;
  for (const OrderedJson& part : parts) {
    if (part.is_string()) {
      out += part.get<std::string>();
    } else if (
        part.is_object() && part.contains("text") && part["text"].is_string() &&
        part.value("type", "text") == "text") {
      out += part["text"].get<std::string>();
    } else {
      return std::nullopt;
    }
  }
  return out;
}

OrderedJson normalize_content(const OrderedJson& content) {
  if (content.is_null()) {
    return "";
  }
  if (content.is_array()) {
    if (auto text = joined_text(content)) {
      return *text;
    }
  }
  return content;
}

OrderedJson normalize_call(OrderedJson call) {
  if (!call.is_object()) {
    fail(ErrorKind::invalid_request, kPlace, "a tool call must be an object");
  }
  OrderedJson& function =
      call.contains("function") && call["function"].is_object()
      ? call["function"]
      : call;
  if (function.contains("arguments") && function["arguments"].is_string()) {
    auto text = function["arguments"].get<std::string>();
    try {
      OrderedJson arguments = parse_ordered_json(text, kPlace);
      if (arguments.is_object()) {
        function["arguments"] = std::move(arguments);
      }
    } catch (const Error&) {
      // A model wrote it; templates that print a string keep it as it is.
    }
  }
  return call;
}

}  // namespace

OrderedJson normalize_messages(const OrderedJson& messages) {
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& message : messages) {
    if (!message.is_object() || !message.contains("role") ||
        !message["role"].is_string()) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "message {} must be an object with a role",
          out.size());
    }
    OrderedJson normal = OrderedJson::object();
    for (const auto& [key, value] : message.items()) {
      if (key == "content") {
        normal[key] = normalize_content(value);
      } else if (key == "tool_calls" && value.is_array()) {
        normal[key] = OrderedJson::array();
        for (const OrderedJson& call : value) {
          normal[key].push_back(normalize_call(call));
        }
      } else if (!value.is_null()) {
        normal[key] = value;
      }
    }
    for (const char* name : kReasoning) {
      if (normal.contains(name)) {
        OrderedJson reasoning = normal[name];
        normal["reasoning_content"] = reasoning;
        if (!normal.contains("thinking")) {
          normal["thinking"] = std::move(reasoning);
        }
        break;
      }
    }
    if (!normal.contains("content")) {
      normal["content"] = "";
    }
    out.push_back(std::move(normal));
  }
  return out;
}

}  // namespace mlxx::text
