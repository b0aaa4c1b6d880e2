#include "mlxx/api/chat_request.h"

#include <climits>

#include <nlohmann/json.hpp>

#include "mlxx/api/chat_messages.h"
#include "mlxx/api/generation_fields.h"
#include "mlxx/api/json_writer.h"

namespace mlxx::api {

namespace {

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

// none: off. Templates with levels know three.
void set_effort(const FieldReader& fields, PromptWishes& wishes) {
  const auto effort = fields.word(
      "reasoning_effort",
      {"none", "minimal", "low", "medium", "high", "xhigh", "max"});
  if (!effort) {
    return;
  }
  wishes.thinking = *effort != "none";
  if (*effort == "minimal") {
    wishes.effort = "low";
  } else if (*effort == "xhigh" || *effort == "max") {
    wishes.effort = "high";
  } else if (*effort != "none") {
    wishes.effort = *effort;
  }
}

PromptWishes read_prompt(const FieldReader& fields, const Limits& limits) {
  PromptWishes out;
  if (const OrderedJson* given = fields.find("chat_template_kwargs")) {
    if (!given->is_object()) {
      fields.refuse(
          "chat_template_kwargs",
          type_problem("an object", *given),
          "invalid_type");
    }
    check_template_variables(*given, "chat_template_kwargs");
    out.variables = std::make_shared<OrderedJson>(*given);
  }
  if (const auto thinking = fields.boolean("enable_thinking")) {
    out.thinking = thinking;
  }
  set_effort(fields, out);
  out.continue_final_message =
      fields.boolean("continue_final_message").value_or(false);
  out.add_generation_prompt =
      fields.boolean("add_generation_prompt").value_or(true);
  out.chat_template =
      fields.string("chat_template", kMaxTemplateBytes).value_or("");
  if (!out.chat_template.empty() && !limits.request_templates) {
    fields.refuse(
        "chat_template",
        "is not allowed by this server",
        "unsupported_parameter");
  }
  return out;
}

std::optional<int> read_budget(const FieldReader& fields) {
  const auto budget = fields.integer("thinking_budget", 0, INT_MAX);
  const auto other = fields.integer("thinking_token_budget", 0, INT_MAX);
  const auto chosen = budget ? budget : other;
  return chosen ? std::optional(static_cast<int>(*chosen)) : std::nullopt;
}

std::optional<int> read_max_tokens(const FieldReader& fields) {
  const auto newer = fields.integer("max_completion_tokens", -1, INT_MAX);
  const auto older = fields.integer("max_tokens", -1, INT_MAX);
  for (const char* name : {"max_completion_tokens", "max_tokens"}) {
    if (fields.integer(name, -1, INT_MAX) == 0) {
      fields.refuse(name, "must be at least 1", "invalid_value");
    }
  }
  const auto chosen = newer ? newer : older;
  return chosen ? std::optional(static_cast<int>(*chosen)) : std::nullopt;
}

void set_logprobs(
    const FieldReader& fields,
    const Limits& limits,
    engine::Request& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, limits.max_top_logprobs);
  if (top && *top > 0 && !wanted) {
    fields.refuse("top_logprobs", "needs logprobs to be true", "invalid_value");
  }
  if (wanted) {
    request.top_logprobs = static_cast<int>(top.value_or(0));
  }
}

void check_modalities(const FieldReader& fields) {
  if (const OrderedJson* list = fields.list("modalities", 8)) {
    for (const OrderedJson& item : *list) {
      if (item != "text") {
        fields.refuse(
            "modalities",
            "can only be [\"text\"]",
            "unsupported_value");
      }
    }
  }
}

struct ReadBody {
  Generation generation;
  ChatWishes wishes;
};

ReadBody read_body(const FieldReader& fields, const Context& context) {
  ReadBody out;
  ChatWishes& wishes = out.wishes;
  wishes.messages = std::make_shared<OrderedJson>(read_messages(fields));
  wishes.tools = read_chat_tools(fields, context.limits);
  wishes.prompt = read_prompt(fields, context.limits);
  wishes.constraint = only_one(
      read_response_format(fields, context.limits),
      read_constraint(fields, context.limits));
  wishes.thinking_budget = read_budget(fields);
  wishes.max_tokens = read_max_tokens(fields);
  check_modalities(fields);
  out.generation = read_generation(fields, context);
  set_logprobs(fields, context.limits, out.generation.request);
  return out;
}

}  // namespace

ChatRequest read_chat(const OrderedJson& body, const Context& context) {
  ChatRequest out;
  const FieldReader fields(
      body,
      chat_fields(),
      context.limits.strict,
      out.ignored);
  ReadBody read = read_body(fields, context);
  out.stream = read.generation.stream;
  out.include_usage = read.generation.include_usage;
  out.plan =
      plan_chat(std::move(read.generation.request), read.wishes, context);
  return out;
}

std::string apply_template(const OrderedJson& body, const Context& context) {
  std::vector<std::string> ignored;
  const FieldReader fields(body, chat_fields(), context.limits.strict, ignored);
  const ReadBody read = read_body(fields, context);
  return write_json({{"prompt", render_chat_text(read.wishes, context)}});
}

}  // namespace mlxx::api
