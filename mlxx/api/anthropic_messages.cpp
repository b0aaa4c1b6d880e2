#include "mlxx/api/anthropic_messages.h"

#include <nlohmann/json.hpp>

#include "mlxx/api/carried_text.h"
#include "mlxx/api/conversation_list.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/base/sha256.h"

namespace mlxx::api {

namespace {

constexpr size_t kMaxMessages = 100'000;
constexpr size_t kMaxBlocks = 100'000;

// The type of a block, checked before its other fields are looked at, so that
// an image is refused as an image.
std::string block_type(
    const OrderedJson& block,
    const std::string& path,
    std::initializer_list<std::string_view> allowed) {
  auto refuse = [&](const std::string& field, std::string what) {
    throw RequestError(400, fmt::format("[{}] {}", field, what), field);
  };
  if (!block.is_object()) {
    refuse(path, type_problem("an object", block));
  }
  auto type = block.find("type");
  std::string field = path + ".type";
  if (type == block.end() || !type->is_string()) {
    refuse(field, "is required and must be a string");
  }
  const auto& name = type->get_ref<const std::string&>();
  for (std::string_view known : allowed) {
    if (name == known) {
      return name;
    }
  }
  refuse(
      field,
      fmt::format(
          "\"{}\" is not supported here, only \"{}\"",
          printable_name(name),
          fmt::join(allowed, "\", \"")));
  return name;
}

// A string or a list of text blocks as one text.
std::string read_text_blocks(const FieldReader& fields, std::string_view name) {
  const OrderedJson* given = fields.find(name);
  if (given && !given->is_array()) {
    if (!given->is_string()) {
      fields.refuse(name, type_problem("a string or a list", *given));
    }
    return *fields.string(name);
  }
  if (!given) {
    return "";
  }
  fields.list(name, kMaxBlocks);
  for (size_t i = 0; i < given->size(); ++i) {
    block_type(
        (*given)[i],
        fmt::format("{}[{}]", fields.path(name), i),
        {"text"});
  }
  std::string out;
  for (const FieldReader& block : fields.objects(name, kMaxBlocks)) {
    std::string text = block.required_string("text");
    if (!out.empty()) {
      out += '\n';
    }
    out += text;
  }
  return out;
}

void read_result(const FieldReader& block, ConversationList& out) {
  std::string id = block.required_string("tool_use_id", 1024);
  std::string text = read_text_blocks(block, "content");
  if (block.boolean("is_error").value_or(false)) {
    text = text.empty() ? "Error" : "Error: " + text;
  }
  out.add_result(id, text);
}

void read_call(const FieldReader& block, ConversationList& out) {
  const OrderedJson* input = block.find("input");
  if (!input) {
    block.missing("input");
  }
  if (!input->is_object()) {
    block.refuse("input", type_problem("an object", *input));
  }
  out.add_call(
      block.required_string("id", 1024),
      block.required_string("name", 1024),
      write_json(*input));
}

void read_thinking_block(const FieldReader& block, ConversationList& out) {
  std::string thinking = block.required_string("thinking");
  std::string signature = block.string("signature").value_or("");
  if (thinking.empty()) {
    thinking = carried_text(signature).value_or("");
  }
  out.add_reasoning(thinking);
}

void read_blocks(
    const FieldReader& message,
    const std::string& role,
    ConversationList& out) {
  const OrderedJson& blocks = *message.list("content", kMaxBlocks);
  if (blocks.empty()) {
    message.refuse("content", "must not be empty", "invalid_value");
  }
  std::vector<std::string> types;
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::string path = fmt::format("{}[{}]", message.path("content"), i);
    types.push_back(
        role == "assistant"
            ? block_type(
                  blocks[i],
                  path,
                  {"text", "thinking", "redacted_thinking", "tool_use"})
            : role == "user"
            ? block_type(blocks[i], path, {"text", "tool_result"})
            : block_type(blocks[i], path, {"text"}));
  }
  size_t i = 0;
  for (const FieldReader& block : message.objects("content", kMaxBlocks)) {
    const std::string& type = types[i++];
    if (type == "text") {
      out.add_text(role, block.required_string("text"), true);
    } else if (type == "tool_result") {
      read_result(block, out);
    } else if (type == "tool_use") {
      read_call(block, out);
    } else if (type == "thinking") {
      read_thinking_block(block, out);
    }
  }
}

}  // namespace

OrderedJson read_anthropic_messages(
    const FieldReader& fields,
    bool& continues) {
  ConversationList out;
  if (fields.has("system")) {
    out.add_text("system", read_text_blocks(fields, "system"), true);
  }
  if (!fields.has("messages")) {
    fields.missing("messages");
  }
  std::string role;
  for (const FieldReader& message : fields.objects("messages", kMaxMessages)) {
    role = message.word("role", {"user", "assistant", "system"}).value_or("");
    if (role.empty()) {
      message.missing("role");
    }
    const OrderedJson* content = message.find("content");
    if (!content) {
      message.missing("content");
    }
    if (content->is_array()) {
      read_blocks(message, role, out);
    } else if (content->is_string()) {
      out.add_text(role, *message.string("content"), true);
    } else {
      message.refuse("content", type_problem("a string or a list", *content));
    }
  }
  if (role.empty()) {
    fields.refuse("messages", "must not be empty", "invalid_value");
  }
  if (role == "assistant" && out.ends_in_call()) {
    fields.refuse(
        "messages",
        "end with a tool_use: its tool_result is missing",
        "invalid_value");
  }
  continues = role == "assistant" && out.ends_open();
  return out.messages();
}

ThinkingChoice read_thinking(const FieldReader& fields) {
  ThinkingChoice out;
  if (auto config = fields.object("output_config")) {
    out.effort =
        config->word("effort", {"low", "medium", "high", "xhigh", "max"})
            .value_or("");
  }
  auto thinking = fields.object("thinking");
  if (!thinking) {
    return out;
  }
  auto type = thinking->word("type", {"enabled", "adaptive", "disabled"});
  if (!type) {
    thinking->missing("type");
  }
  out.wanted = *type != "disabled";
  out.omitted =
      thinking->word("display", {"summarized", "omitted"}).value_or("") ==
      "omitted";
  auto budget = thinking->integer("budget_tokens", 1, INT32_MAX);
  if (*type == "enabled") {
    if (!budget) {
      thinking->missing("budget_tokens");
    }
    out.budget = static_cast<int>(*budget);
  } else if (budget) {
    thinking->refuse(
        "budget_tokens",
        "is of thinking of type \"enabled\"",
        "invalid_value");
  }
  return out;
}

std::string thinking_signature(std::string_view thinking, bool omitted) {
  if (omitted) {
    return carry_text(thinking);
  }
  return sha256_hex(std::as_bytes(std::span(thinking))).substr(0, 32);
}

}  // namespace mlxx::api
