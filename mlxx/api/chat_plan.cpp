#include "mlxx/api/chat_plan.h"

#include <algorithm>
#include <span>

#include <nlohmann/json.hpp>

#include "mlxx/api/generation_fields.h"
#include "mlxx/api/json_writer.h"

namespace mlxx::api {

namespace {

text::RenderOptions render_options(
    const PromptWishes& wishes,
    const Context& context) {
  text::RenderOptions out;
  out.add_generation_prompt = wishes.add_generation_prompt;
  out.continue_final_message = wishes.continue_final_message;
  out.unix_time = context.unix_time;
  OrderedJson variables = context.template_variables
      ? *context.template_variables
      : OrderedJson::object();
  if (wishes.variables) {
    variables.update(*wishes.variables);
  }
  if (wishes.thinking) {
    // Qwen, GLM, SmolLM3; DeepSeek, Granite and others.
    variables["enable_thinking"] = *wishes.thinking;
    variables["thinking"] = *wishes.thinking;
  }
  if (!wishes.effort.empty()) {
    variables["reasoning_effort"] = wishes.effort;
  }
  out.extra_json = write_json(variables);
  return out;
}

std::shared_ptr<const text::ChatTemplate> own_template(
    const PromptWishes& wishes,
    const Context& context) {
  const engine::ModelText& model = *context.model;
  auto name_of = [&](std::optional<int32_t> id) {
    return id ? model.tokenizer->id_to_token(*id) : std::string();
  };
  return text::ChatTemplate::compile(
      wishes.chat_template,
      name_of(model.bos_id),
      model.eos_ids.empty() ? "" : name_of(*model.eos_ids.begin()));
}

// The strings in a value, at whatever depth the reader of bodies allows.
void add_strings(const OrderedJson& value, std::vector<std::string_view>& out) {
  if (value.is_string()) {
    out.push_back(value.get_ref<const std::string&>());
  } else if (value.is_structured()) {
    for (const OrderedJson& item : value) {
      add_strings(item, out);
    }
  }
}

// Contents and calls: templates show them as they are. (Reasoning of earlier
// turns many leave out.)
std::vector<std::string_view> texts_of(const OrderedJson& messages) {
  std::vector<std::string_view> out;
  for (const OrderedJson& message : messages) {
    for (const char* name : {"content", "tool_calls"}) {
      if (const auto part = message.find(name); part != message.end()) {
        add_strings(*part, out);
      }
    }
  }
  return out;
}

// Runs what reads the conversation; a template's refusal is the request's
// error, a broken template of the model is not.
template <typename Function>
auto with_messages_error(const PromptWishes& wishes, Function&& function) {
  const bool own = !wishes.chat_template.empty();
  try {
    return function();
  } catch (const RequestError&) {
    throw;
  } catch (const Error& error) {
    const bool is_request = error.kind() == ErrorKind::invalid_request ||
        (own && error.kind() == ErrorKind::bad_file);
    if (!is_request) {
      throw;
    }
    throw RequestError(
        400,
        error.what(),
        own ? "chat_template" : "messages",
        "invalid_value");
  }
}

const std::string& template_source(
    const ChatWishes& wishes,
    const engine::ModelText& model) {
  if (!wishes.prompt.chat_template.empty()) {
    return wishes.prompt.chat_template;
  }
  const bool tools = wishes.tools.listed && !model.tool_template_source.empty();
  return tools ? model.tool_template_source : model.chat_template_source;
}

const OrderedJson& tools_of(const ChatWishes& wishes) {
  static const OrderedJson kNone;
  return wishes.tools.listed ? *wishes.tools.listed : kNone;
}

// By the last tokens: a prompt is not worth decoding as a whole.
bool opens_reasoning(
    std::span<const int32_t> prompt,
    const std::optional<text::ReasoningFormat>& format,
    const text::Tokenizer& tokenizer) {
  const std::string tail =
      tokenizer.decode(prompt.last(std::min<size_t>(prompt.size(), 24)));
  if (text::opens_thinking(tail)) {
    return true;
  }
  std::string_view rest = tail;
  while (!rest.empty() && (rest.back() == '\n' || rest.back() == ' ')) {
    rest.remove_suffix(1);
  }
  return format && !format->begin.empty() && rest.ends_with(format->begin);
}

void add_visible(std::vector<std::string>& out, const std::string& token) {
  if (!token.empty() && std::find(out.begin(), out.end(), token) == out.end()) {
    out.push_back(token);
  }
}

size_t pattern_bytes(const OrderedJson& schema) {
  size_t bytes = 0;
  if (schema.is_object()) {
    for (const auto& [name, value] : schema.items()) {
      if (name == "pattern" && value.is_string()) {
        bytes += value.get_ref<const std::string&>().size();
        continue;
      }
      if (name == "patternProperties" && value.is_object()) {
        for (const auto& [pattern, unused] : value.items()) {
          bytes += pattern.size();
        }
      }
      bytes += pattern_bytes(value);
    }
  } else if (schema.is_array()) {
    for (const OrderedJson& item : schema) {
      bytes += pattern_bytes(item);
    }
  }
  return bytes;
}

// The time that a regex takes grows as the square of its length. Constraints of
// their own are limited where they are compiled.
void check_patterns(const ChatWishes& wishes, const Limits& limits) {
  if (!wishes.tools.any()) {
    return;
  }
  const size_t bytes = pattern_bytes(*wishes.tools.callable);
  if (bytes > static_cast<size_t>(limits.max_pattern_bytes)) {
    throw RequestError(
        400,
        fmt::format(
            "[tools] have patterns of {} bytes, {} are allowed",
            bytes,
            limits.max_pattern_bytes),
        "tools",
        "string_above_max_length");
  }
}

// What the answer must follow: the calls that tool_choice asks for, the format
// of the response, or either.
std::optional<GivenConstraint> combined_constraint(
    const ChatWishes& wishes,
    const text::ToolFormat* format,
    const text::Tokenizer* tokenizer) {
  if (!wishes.tools.any()) {
    return wishes.constraint;
  }
  const bool forced = wishes.tools.choice != text::ToolChoice::automatic;
  text::ToolUse use;
  use.tools = wishes.tools.callable.get();
  use.choice = wishes.tools.choice;
  use.named = wishes.tools.named;
  use.parallel = wishes.tools.parallel;
  use.tokenizer = tokenizer;
  if (wishes.constraint) {
    const bool schema =
        wishes.constraint->constraint.kind == text::GrammarKind::json_schema;
    if (forced || !schema) {
      throw RequestError(
          400,
          fmt::format(
              "[{}] cannot be combined with {}",
              wishes.constraint->param,
              forced ? "a tool_choice that asks for a call" : "tools"),
          wishes.constraint->param,
          "invalid_value");
    }
    use.choice = text::ToolChoice::required;  // or else the schema
  }
  const auto calls = format->constraint(use);
  if (!calls) {
    return wishes.constraint;
  }
  if (!wishes.constraint) {
    return GivenConstraint(text::GrammarKind::lark, *calls, "tools");
  }
  engine::Constraint both =
      schema_or_calls(wishes.constraint->constraint, *calls);
  return GivenConstraint(
      both.kind,
      std::move(both.grammar),
      wishes.constraint->param);
}

void set_constraint(
    ChatPlan& plan,
    const ChatWishes& wishes,
    const text::ToolFormat* format,
    const Context& context) {
  std::optional<GivenConstraint> given;
  try {
    given = combined_constraint(wishes, format, context.model->tokenizer.get());
  } catch (const RequestError&) {
    throw;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_request) {
      throw;
    }
    throw RequestError(400, error.what(), "tools", "invalid_schema");
  }
  if (given) {
    check_constraint(given->constraint, *context.model, given->param);
    plan.request.constraint = std::move(given->constraint);
  }
}

}  // namespace

std::unique_ptr<text::AnswerParser> ChatPlan::make_parser() const {
  if (!format) {
    return nullptr;
  }
  const bool open = request.reasoning && request.reasoning->open;
  return format->make_parser(
      reasoning,
      open,
      callable ? *callable : OrderedJson());
}

std::vector<int32_t> encode_chat_tokens(
    const ChatWishes& wishes,
    const Context& context) {
  check_text_length(texts_of(*wishes.messages), *context.model, "messages");
  const std::string& source = template_source(wishes, *context.model);
  if (source.find("tools") != std::string::npos) {
    std::vector<std::string_view> texts;
    add_strings(tools_of(wishes), texts);
    check_text_length(texts, *context.model, "tools");
  }
  return with_messages_error(wishes.prompt, [&] {
    const text::RenderOptions options = render_options(wishes.prompt, context);
    if (wishes.prompt.chat_template.empty()) {
      return engine::encode_chat(
          *context.model,
          *wishes.messages,
          tools_of(wishes),
          options);
    }
    return own_template(wishes.prompt, context)
        ->encode(
            *context.model->tokenizer,
            *wishes.messages,
            tools_of(wishes),
            options);
  });
}

std::string render_chat_text(const ChatWishes& wishes, const Context& context) {
  return with_messages_error(wishes.prompt, [&] {
    const text::RenderOptions options = render_options(wishes.prompt, context);
    if (wishes.prompt.chat_template.empty()) {
      return engine::render_chat(
          *context.model,
          *wishes.messages,
          tools_of(wishes),
          options);
    }
    return own_template(wishes.prompt, context)
        ->render(*wishes.messages, tools_of(wishes), options);
  });
}

ChatPlan plan_chat(
    engine::Request base,
    const ChatWishes& wishes,
    const Context& context) {
  require_answers(*context.model);
  check_patterns(wishes, context.limits);
  ChatPlan plan;
  plan.request = std::move(base);
  engine::Request& request = plan.request;
  request.prompt = encode_chat_tokens(wishes, context);
  if (request.prompt.empty()) {
    throw RequestError(
        400,
        "[messages] give an empty prompt",
        "messages",
        "invalid_value");
  }
  set_room(request, wishes.max_tokens, context, "messages");

  const std::string& source = template_source(wishes, *context.model);
  plan.reasoning = text::find_reasoning_format(source);
  plan.callable = wishes.tools.callable;
  const text::ToolFormat& format = text::find_tool_format(source);
  if (plan.reasoning) {
    engine::Reasoning reasoning;
    reasoning.begin = plan.reasoning->begin;
    reasoning.end = plan.reasoning->end;
    reasoning.open = opens_reasoning(
        request.prompt,
        plan.reasoning,
        *context.model->tokenizer);
    reasoning.budget = wishes.thinking_budget;
    add_visible(request.visible_tokens, reasoning.begin);
    add_visible(request.visible_tokens, reasoning.end);
    request.reasoning = std::move(reasoning);
  }
  if (plan.reasoning || wishes.tools.any()) {
    plan.format = &format;
  }
  const bool harmony = plan.reasoning && plan.reasoning->name == "harmony";
  if (wishes.tools.any() || harmony) {
    for (const std::string& token :
         text::markup_tokens(format, plan.reasoning)) {
      add_visible(request.visible_tokens, token);
    }
  }
  set_constraint(plan, wishes, &format, context);
  return plan;
}

void check_template_variables(
    const OrderedJson& variables,
    const std::string& param) {
  for (const auto& [name, value] : variables.items()) {
    if (text::is_reserved_variable(name)) {
      throw RequestError(
          400,
          fmt::format("[{}] may not set {}", param, name),
          param,
          "invalid_value");
    }
  }
}

}  // namespace mlxx::api
