#include "mlxx/api/response_input.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "mlxx/api/carried_text.h"

namespace mlxx::api {

namespace {

constexpr size_t kMaxItems = 16'384;
constexpr size_t kMaxParts = 4096;
constexpr size_t kMaxNameBytes = 1024;

// The id that the client gave, or a new one.
std::string item_id(
    const FieldReader& item,
    std::string_view prefix,
    const Context& context) {
  auto given = item.string("id", kMaxNameBytes);
  return given && !given->empty() ? *given : context.make_id(prefix);
}

std::string part_type(const FieldReader& part, std::string_view allowed) {
  auto type = part.string("type", kMaxNameBytes);
  if (!type) {
    part.missing("type");
  }
  if (allowed.find(fmt::format(" {} ", *type)) == std::string_view::npos) {
    part.refuse(
        "type",
        fmt::format(
            "\"{}\" is not supported here, only{}",
            printable_name(*type),
            allowed),
        "unsupported_value");
  }
  return *type;
}

// Types of parts, checked before other fields are looked at, so that an image
// is refused as an image.
void check_part_types(
    const FieldReader& item,
    std::string_view name,
    std::string_view allowed) {
  const OrderedJson* parts = item.list(name, kMaxParts);
  for (size_t i = 0; parts && i < parts->size(); ++i) {
    const OrderedJson& part = (*parts)[i];
    if (!part.is_object() || !part.contains("type") ||
        !part["type"].is_string()) {
      continue;  // the readers say so
    }
    const auto& type = part["type"].get_ref<const std::string&>();
    if (allowed.find(fmt::format(" {} ", type)) == std::string_view::npos) {
      std::string path = fmt::format("{}[{}].type", item.path(name), i);
      throw RequestError(
          400,
          fmt::format(
              "[{}] \"{}\" is not supported here, only{}",
              path,
              printable_name(type),
              allowed),
          path,
          "unsupported_value");
    }
  }
}

OrderedJson text_part(std::string_view type, std::string text) {
  OrderedJson part = {{"type", type}, {"text", std::move(text)}};
  if (type == "output_text") {
    part["annotations"] = OrderedJson::array();
  }
  return part;
}

// A string or parts, as a list of parts.
OrderedJson read_content(const FieldReader& item, bool from_assistant) {
  const std::string_view plain = from_assistant ? "output_text" : "input_text";
  const OrderedJson* content = item.find("content");
  if (!content) {
    item.missing("content");
  }
  if (content->is_string()) {
    return OrderedJson::array({text_part(plain, *item.string("content"))});
  }
  if (!content->is_array()) {
    item.refuse(
        "content",
        type_problem("a string or a list", *content),
        "invalid_type");
  }
  const std::string_view allowed =
      from_assistant ? " output_text refusal input_text " : " input_text ";
  check_part_types(item, "content", allowed);
  OrderedJson out = OrderedJson::array();
  for (const FieldReader& part : item.objects("content", kMaxParts)) {
    if (part_type(part, allowed) == "refusal") {
      out.push_back(
          {{"type", "refusal"}, {"refusal", part.required_string("refusal")}});
    } else {
      out.push_back(text_part(plain, part.required_string("text")));
    }
  }
  return out;
}

OrderedJson read_message(const FieldReader& item, const Context& context) {
  auto role = item.word("role", {"user", "assistant", "system", "developer"});
  if (!role) {
    item.missing("role");
  }
  return {
      {"id", item_id(item, "msg_", context)},
      {"type", "message"},
      {"status", "completed"},
      {"role", *role},
      {"content", read_content(item, *role == "assistant")}};
}

OrderedJson read_call(const FieldReader& item, const Context& context) {
  return {
      {"id", item_id(item, "fc_", context)},
      {"type", "function_call"},
      {"status", "completed"},
      {"call_id", item.required_string("call_id", kMaxNameBytes)},
      {"name", item.required_string("name", kMaxNameBytes)},
      {"arguments", item.required_string("arguments")}};
}

OrderedJson read_call_output(const FieldReader& item, const Context& context) {
  const OrderedJson* output = item.find("output");
  if (!output) {
    item.missing("output");
  }
  OrderedJson out = {
      {"id", item_id(item, "fco_", context)},
      {"type", "function_call_output"},
      {"status", "completed"},
      {"call_id", item.string("call_id", kMaxNameBytes).value_or("")}};
  if (output->is_array()) {
    check_part_types(item, "output", " input_text ");
    out["output"] = OrderedJson::array();
    for (const FieldReader& part : item.objects("output", kMaxParts)) {
      part_type(part, " input_text ");
      out["output"].push_back(
          text_part("input_text", part.required_string("text")));
    }
  } else {
    out["output"] = item.required_string("output");
  }
  return out;
}

OrderedJson read_parts(
    const FieldReader& item,
    std::string_view name,
    std::string_view type) {
  OrderedJson out = OrderedJson::array();
  for (const FieldReader& part : item.objects(name, kMaxParts)) {
    part_type(part, fmt::format(" {} ", type));
    out.push_back(text_part(type, part.required_string("text")));
  }
  return out;
}

OrderedJson read_reasoning(const FieldReader& item, const Context& context) {
  OrderedJson out = {
      {"id", item_id(item, "rs_", context)},
      {"type", "reasoning"},
      {"status", "completed"},
      {"summary", read_parts(item, "summary", "summary_text")}};
  if (item.has("content")) {
    out["content"] = read_parts(item, "content", "reasoning_text");
  }
  if (auto carried = item.string("encrypted_content")) {
    out["encrypted_content"] = *carried;
  }
  return out;
}

const OrderedJson* find_item(const OrderedJson& items, std::string_view id) {
  for (const OrderedJson& item : items) {
    if (item.value("id", "") == id) {
      return &item;
    }
  }
  return nullptr;
}

OrderedJson read_reference(
    const FieldReader& item,
    const OrderedJson& earlier,
    const Context& context) {
  std::string id = item.required_string("id", kMaxNameBytes);
  if (const OrderedJson* found = find_item(earlier, id)) {
    return *found;
  }
  if (context.store) {
    if (auto owner = context.store->find_by_item(id, context.unix_time)) {
      OrderedJson items = items_of_turns({*std::move(owner)});
      if (const OrderedJson* found = find_item(items, id)) {
        return *found;
      }
    }
  }
  throw RequestError(
      404,
      fmt::format(
          "[{}] there is no stored item '{}'",
          item.path("id"),
          printable_name(id)),
      item.path("id"),
      "item_not_found");
}

std::string text_of(const OrderedJson& parts) {
  if (parts.is_string()) {
    return parts.get<std::string>();
  }
  std::string out;
  for (const OrderedJson& part : parts) {
    out += part.value("text", part.value("refusal", ""));
  }
  return out;
}

std::string reasoning_of(const OrderedJson& item) {
  if (auto carried = carried_text(item.value("encrypted_content", ""))) {
    return *carried;
  }
  if (item.contains("content") && !item.at("content").empty()) {
    return text_of(item.at("content"));
  }
  return text_of(item.at("summary"));
}

// The type of an item, checked before its other fields are looked at.
std::string item_type(const OrderedJson& item, const std::string& path) {
  constexpr std::array<std::string_view, 5> kKnown = {
      "message",
      "function_call",
      "function_call_output",
      "reasoning",
      "item_reference"};
  if (!item.is_object()) {
    throw RequestError(
        400,
        fmt::format("[{}] {}", path, type_problem("an object", item)),
        path,
        "invalid_type");
  }
  auto type = item.find("type");
  if (type == item.end() || type->is_null()) {
    // Of a message and of a reference it may be left out.
    return item.contains("role") ? "message" : "item_reference";
  }
  std::string name = type->is_string() ? type->get<std::string>() : "";
  if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) {
    std::string field = path + ".type";
    throw RequestError(
        400,
        fmt::format(
            "[{}] \"{}\" is not supported, only {}",
            field,
            printable_name(name),
            fmt::join(kKnown, ", ")),
        field,
        "unsupported_value");
  }
  return name;
}

}  // namespace

OrderedJson read_response_input(
    const FieldReader& fields,
    const OrderedJson& earlier,
    const Context& context) {
  const OrderedJson* input = fields.find("input");
  if (!input) {
    fields.missing("input");
  }
  OrderedJson out = OrderedJson::array();
  if (input->is_string()) {
    out.push_back(
        {{"id", context.make_id("msg_")},
         {"type", "message"},
         {"status", "completed"},
         {"role", "user"},
         {"content",
          OrderedJson::array(
              {text_part("input_text", *fields.string("input"))})}});
    return out;
  }
  if (!input->is_array()) {
    fields.refuse(
        "input",
        type_problem("a string or a list", *input),
        "invalid_type");
  }
  fields.list("input", kMaxItems);
  std::vector<std::string> types;
  for (size_t i = 0; i < input->size(); ++i) {
    types.push_back(item_type((*input)[i], fmt::format("input[{}]", i)));
  }
  size_t i = 0;
  for (const FieldReader& item : fields.objects("input", kMaxItems)) {
    const std::string& type = types[i++];
    out.push_back(
        type == "message"                    ? read_message(item, context)
            : type == "function_call"        ? read_call(item, context)
            : type == "function_call_output" ? read_call_output(item, context)
            : type == "reasoning"            ? read_reasoning(item, context)
                                  : read_reference(item, earlier, context));
  }
  return out;
}

OrderedJson items_of_turns(const std::vector<StoredResponse>& turns) {
  OrderedJson out = OrderedJson::array();
  for (const StoredResponse& turn : turns) {
    OrderedJson input = parse_ordered_json(turn.input, "stored input");
    OrderedJson response = parse_ordered_json(turn.response, "stored response");
    for (OrderedJson& item : input) {
      out.push_back(std::move(item));
    }
    for (OrderedJson& item : response["output"]) {
      out.push_back(std::move(item));
    }
  }
  return out;
}

void add_items(ConversationList& out, const OrderedJson& items) {
  for (const OrderedJson& item : items) {
    const std::string type = item.value("type", "");
    if (type == "message") {
      const std::string role = item.value("role", "user");
      out.add_text(
          role == "developer" ? "system" : role,
          text_of(item.at("content")),
          false);
    } else if (type == "reasoning") {
      out.add_reasoning(reasoning_of(item));
    } else if (type == "function_call") {
      out.add_call(
          item.value("call_id", ""),
          item.value("name", ""),
          item.value("arguments", ""));
    } else if (type == "function_call_output") {
      out.add_result(item.value("call_id", ""), text_of(item.at("output")));
    }
  }
}

std::vector<std::string> item_ids(const OrderedJson& items) {
  std::vector<std::string> out;
  for (const OrderedJson& item : items) {
    out.push_back(item.value("id", ""));
  }
  return out;
}

}  // namespace mlxx::api
