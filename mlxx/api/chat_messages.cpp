#include "mlxx/api/chat_messages.h"

#include <nlohmann/json.hpp>

namespace mlxx::api {

namespace {

constexpr size_t kMaxMessages = 8192;
constexpr size_t kMaxParts = 4096;
constexpr size_t kMaxCalls = 256;

std::string part_text(const FieldReader& part) {
  const auto type = part.string("type", 64);
  const auto text = part.string("text");
  const auto refusal = part.string("refusal");
  if (type && *type != "text" && *type != "refusal") {
    part.refuse(
        "type",
        "must be \"text\": the model reads text only",
        "unsupported_value");
  }
  const bool is_refusal = type && *type == "refusal";
  if (is_refusal ? refusal.has_value() : text.has_value()) {
    return is_refusal ? *refusal : *text;
  }
  part.missing(is_refusal ? "refusal" : "text");
}

// A string, or text parts joined; nothing if there is none.
std::optional<std::string> read_content(const FieldReader& message) {
  const OrderedJson* content = message.find("content");
  if (!content) {
    return message.string("refusal");
  }
  if (content->is_string()) {
    return message.string("content");
  }
  if (!content->is_array()) {
    message.refuse(
        "content",
        type_problem("a string or a list of parts", *content),
        "invalid_type");
  }
  std::string out;
  for (const FieldReader& part : message.objects("content", kMaxParts)) {
    out += part_text(part);
  }
  return out;
}

OrderedJson read_call(const FieldReader& call) {
  const auto id = call.string("id", 256);
  call.word("type", {"function"});
  const auto function = call.object("function");
  if (!function) {
    call.missing("function");
  }
  OrderedJson out = OrderedJson::object();
  if (id) {
    out["id"] = *id;
  }
  out["type"] = "function";
  out["function"] = {
      {"name", function->required_string("name", 256)},
      {"arguments", function->string("arguments").value_or("{}")}};
  return out;
}

OrderedJson read_message(const FieldReader& message) {
  const std::string role = message.required_string("role", 64);
  if (role != "system" && role != "developer" && role != "user" &&
      role != "assistant" && role != "tool") {
    message.refuse(
        "role",
        "must be one of \"system\", \"developer\", \"user\", \"assistant\", "
        "\"tool\"",
        "invalid_value");
  }
  OrderedJson out = {{"role", role == "developer" ? "system" : role}};
  const auto content = read_content(message);
  OrderedJson calls = OrderedJson::array();
  for (const FieldReader& call : message.objects("tool_calls", kMaxCalls)) {
    calls.push_back(read_call(call));
  }
  const auto reasoning = message.string("reasoning_content");
  const auto other_reasoning = message.string("reasoning");
  const auto name = message.string("name", 256);
  const auto call_id = message.string("tool_call_id", 256);
  if (!content && role != "assistant") {
    message.missing("content");
  }
  if (!calls.empty() && role != "assistant") {
    message.refuse(
        "tool_calls",
        "only an assistant makes calls",
        "invalid_value");
  }
  out["content"] = content.value_or("");
  if (reasoning || other_reasoning) {
    out["reasoning_content"] = reasoning ? *reasoning : *other_reasoning;
  }
  if (name) {
    out["name"] = *name;
  }
  if (!calls.empty()) {
    out["tool_calls"] = std::move(calls);
  }
  if (call_id) {
    out["tool_call_id"] = *call_id;
  }
  return out;
}

}  // namespace

OrderedJson read_messages(const FieldReader& fields) {
  if (!fields.has("messages")) {
    fields.missing("messages");
  }
  OrderedJson out = OrderedJson::array();
  for (const FieldReader& message : fields.objects("messages", kMaxMessages)) {
    out.push_back(read_message(message));
  }
  if (out.empty()) {
    fields.refuse("messages", "must not be empty", "invalid_value");
  }
  return out;
}

}  // namespace mlxx::api
