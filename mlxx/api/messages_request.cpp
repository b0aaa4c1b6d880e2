#include "mlxx/api/messages_request.h"

#include <nlohmann/json.hpp>

#include "mlxx/api/anthropic_messages.h"
#include "mlxx/api/generation_fields.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/messages.h"

namespace mlxx::api {

namespace {

constexpr int64_t kMaxTokens = 1'000'000'000;

void read_format(
    const FieldReader& fields,
    const Limits& limits,
    ChatWishes& wishes) {
  auto read = [&](const FieldReader& format) {
    if (!format.word("type", {"json_schema"})) {
      format.missing("type");
    }
    const OrderedJson* schema = format.find("schema");
    if (!schema) {
      format.missing("schema");
    }
    wishes.constraint = only_one(
        std::move(wishes.constraint),
        schema_constraint(*schema, format.path("schema"), limits));
  };
  if (auto config = fields.object("output_config")) {
    if (auto format = config->object("format")) {
      read(*format);
    }
  }
  if (auto format = fields.object("output_format")) {
    read(*format);
  }
}

// Coding agents send the edit that keeps all thinking.
void check_context_management(const FieldReader& fields) {
  auto management = fields.object("context_management");
  if (!management) {
    return;
  }
  for (const FieldReader& edit : management->objects("edits", 16)) {
    if (!edit.word("type", {"clear_thinking_20251015"})) {
      edit.missing("type");
    }
    if (!edit.word("keep", {"all"})) {
      edit.missing("keep");
    }
  }
}

// What /v1/messages and its count_tokens have in common.
ChatWishes read_wishes(
    const FieldReader& fields,
    const Context& context,
    bool& thinking_omitted) {
  ChatWishes out;
  fields.string("model", 1024);  // the caller chose context.model by it
  check_context_management(fields);
  out.messages = std::make_shared<const OrderedJson>(
      read_anthropic_messages(fields, out.prompt.continue_final_message));
  out.tools = read_anthropic_tools(fields, context.limits);
  read_format(fields, context.limits, out);
  ThinkingChoice thinking = read_thinking(fields);
  out.prompt.thinking = thinking.wanted;
  // Templates with levels know three.
  out.prompt.effort = thinking.effort == "xhigh" || thinking.effort == "max"
      ? "high"
      : thinking.effort;
  out.thinking_budget = thinking.budget;
  thinking_omitted = thinking.omitted;
  return out;
}

}  // namespace

MessagesRequest read_messages_request(
    const OrderedJson& body,
    const Context& context) {
  MessagesRequest out;
  const FieldReader fields(
      body,
      message_fields(),
      context.limits.strict,
      out.ignored);
  auto max_tokens = fields.integer("max_tokens", 1, kMaxTokens);
  if (!max_tokens) {
    fields.missing("max_tokens");
  }
  ChatWishes wishes = read_wishes(fields, context, out.thinking_omitted);
  wishes.max_tokens = static_cast<int>(*max_tokens);
  if (wishes.thinking_budget && *wishes.thinking_budget >= *max_tokens) {
    fields.refuse(
        "thinking",
        fmt::format(
            "budget_tokens must be less than max_tokens, which is {}",
            *max_tokens),
        "invalid_value");
  }
  fields.number("temperature", 0, 1);
  engine::Request base;
  base.model = context.model->name;
  base.adapter = read_adapter(fields);
  base.sampling = read_sampling(fields, context);
  base.stop = read_stop(fields, "stop_sequences", context.limits);
  out.stream = fields.boolean("stream").value_or(false);
  out.plan = plan_chat(std::move(base), wishes, context);
  out.fills_context = out.plan.request.max_tokens < *max_tokens &&
      static_cast<int>(out.plan.request.prompt.size()) +
              out.plan.request.max_tokens ==
          context.model->context_length;
  return out;
}

std::string count_message_tokens(
    const OrderedJson& body,
    const Context& context,
    std::vector<std::string>& ignored) {
  const FieldReader fields(
      body,
      count_tokens_fields(),
      context.limits.strict,
      ignored);
  bool thinking_omitted = false;
  ChatWishes wishes = read_wishes(fields, context, thinking_omitted);
  if (const auto& given = wishes.constraint) {
    check_constraint(given->constraint, *context.model, given->param);
  }
  return write_json(
      {{"input_tokens", encode_chat_tokens(wishes, context).size()}});
}

}  // namespace mlxx::api
