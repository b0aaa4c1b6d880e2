#include "mlxx/api/response_request.h"

#include <climits>
#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/api/generation_fields.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/response_input.h"
#include "mlxx/api/response_tools.h"
#include "mlxx/base/utf8.h"

namespace mlxx::api {

namespace {

constexpr size_t kMaxPairs = 16;
constexpr size_t kMaxKey = 64;
constexpr size_t kMaxValue = 512;

// A float as a person would write it.
double rounded(float value) {
  return std::round(static_cast<double>(value) * 1e6) / 1e6;
}

OrderedJson read_metadata(const FieldReader& fields) {
  const OrderedJson* given = fields.find("metadata");
  if (!given) {
    return OrderedJson::object();
  }
  bool good = given->is_object() && given->size() <= kMaxPairs;
  if (good) {
    for (const auto& [key, value] : given->items()) {
      good = good && key.size() <= kMaxKey && value.is_string() &&
          value.get_ref<const std::string&>().size() <= kMaxValue * 4;
    }
  }
  if (!good) {
    fields.refuse(
        "metadata",
        fmt::format(
            "must be an object of at most {} strings of {} characters, with "
            "keys of {}",
            kMaxPairs,
            kMaxValue,
            kMaxKey),
        "invalid_value");
  }
  return *given;
}

// text.format, as it is echoed; sets the constraint.
OrderedJson read_text_format(
    const FieldReader& fields,
    const Limits& limits,
    ChatWishes& wishes) {
  OrderedJson plain = {{"format", {{"type", "text"}}}, {"verbosity", "medium"}};
  auto text = fields.object("text");
  if (!text) {
    return plain;
  }
  text->word("verbosity", {"medium"});
  auto format = text->object("format");
  if (!format) {
    return plain;
  }
  auto type = format->word("type", {"text", "json_object", "json_schema"});
  if (!type) {
    format->missing("type");
  }
  OrderedJson echo = {{"type", *type}};
  if (*type == "json_object") {
    wishes.constraint =
        schema_constraint({{"type", "object"}}, format->path("type"), limits);
  } else if (*type == "json_schema") {
    const OrderedJson* schema = format->find("schema");
    if (!schema) {
      format->missing("schema");
    }
    echo["name"] = format->string("name", 256).value_or("");
    if (auto description = format->string("description", 65'536)) {
      echo["description"] = *description;
    }
    echo["schema"] = *schema;
    auto strict = format->boolean("strict");
    echo["strict"] = strict ? OrderedJson(*strict) : OrderedJson();
    wishes.constraint =
        schema_constraint(*schema, format->path("schema"), limits);
  }
  return {{"format", std::move(echo)}, {"verbosity", "medium"}};
}

// none: off. Templates with levels know three.
void set_effort(const std::string& effort, PromptWishes& wishes) {
  wishes.thinking = effort != "none";
  if (effort == "minimal") {
    wishes.effort = "low";
  } else if (effort == "xhigh" || effort == "max") {
    wishes.effort = "high";
  } else if (effort != "none") {
    wishes.effort = effort;
  }
}

// reasoning, as it is echoed.
OrderedJson
read_reasoning(const FieldReader& fields, ChatWishes& wishes, bool& summary) {
  OrderedJson echo = {{"effort", nullptr}, {"summary", nullptr}};
  auto reasoning = fields.object("reasoning");
  if (!reasoning) {
    return echo;
  }
  reasoning->word("context", {"auto"});
  reasoning->word("mode", {"standard"});
  auto wanted = reasoning->word("summary", {"auto", "detailed"});
  auto older = reasoning->word("generate_summary", {"auto", "detailed"});
  summary = wanted || older;
  if (summary) {
    echo["summary"] = "detailed";
  }
  auto effort = reasoning->word(
      "effort",
      {"none", "minimal", "low", "medium", "high", "xhigh", "max"});
  if (effort) {
    echo["effort"] = *effort;
    set_effort(*effort, wishes.prompt);
  }
  return echo;
}

void read_include(
    const FieldReader& fields,
    const Limits& limits,
    engine::Request& request,
    bool& encrypted) {
  auto top = fields.integer("top_logprobs", 0, limits.max_top_logprobs);
  bool logprobs = top.value_or(0) > 0;
  if (const OrderedJson* include = fields.list("include", 64)) {
    for (const OrderedJson& item : *include) {
      if (item == "message.output_text.logprobs") {
        logprobs = true;
      } else if (item == "reasoning.encrypted_content") {
        encrypted = true;
      } else {
        fields.refuse(
            "include",
            "can only have \"message.output_text.logprobs\" and "
            "\"reasoning.encrypted_content\"",
            "unsupported_value");
      }
    }
  }
  if (logprobs) {
    request.top_logprobs = static_cast<int>(top.value_or(0));
  }
}

void check_background(const FieldReader& fields) {
  if (fields.boolean("background").value_or(false)) {
    fields.refuse(
        "background",
        "must be false: responses are made while the client waits",
        "unsupported_value");
  }
}

std::vector<StoredResponse> earlier_turns(
    const FieldReader& fields,
    const Context& context,
    std::string& previous_id) {
  previous_id = fields.string("previous_response_id", 1024).value_or("");
  if (previous_id.empty()) {
    return {};
  }
  if (!context.store) {
    fields.refuse(
        "previous_response_id",
        "cannot be used: this server stores no responses",
        "unsupported_parameter");
  }
  try {
    return context.store->conversation(previous_id, context.unix_time);
  } catch (const Error& error) {
    const bool is_unknown = error.kind() == ErrorKind::not_found;
    if (!is_unknown && error.kind() != ErrorKind::invalid_request) {
      throw;
    }
    throw RequestError(
        is_unknown ? 404 : 400,
        error.what(),
        "previous_response_id",
        is_unknown ? "previous_response_not_found" : "conversation_too_long");
  }
}

bool read_store(const FieldReader& fields, const Context& context) {
  auto store = fields.boolean("store");
  return store.value_or(true) && context.store;
}

// Where the turns of a conversation begin that may be left out: each message of
// the user begins one.
std::vector<size_t> turn_starts(const OrderedJson& messages) {
  std::vector<size_t> out;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]["role"] == "user") {
      out.push_back(i);
    }
  }
  return out;
}

// Without what is before `begin`, but for system messages.
OrderedJson without_turns(const OrderedJson& messages, size_t begin) {
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i >= begin || messages[i]["role"] == "system") {
      out.push_back(messages[i]);
    }
  }
  return out;
}

// truncation "auto": leaves out as few of the oldest turns as make room for
// the answer, or for a quarter of the context. The last turn stays.
void leave_out_turns(ChatWishes& wishes, const Context& context) {
  const int context_length = context.model->context_length;
  if (context_length <= 0) {
    return;
  }
  const int answer = std::min(
      wishes.max_tokens.value_or(context.limits.default_max_tokens),
      context_length / 4);
  const SharedJson whole = wishes.messages;
  const std::vector<size_t> starts = turn_starts(*whole);
  auto fits = [&](size_t turn) {
    if (turn > 0) {
      wishes.messages = std::make_shared<const OrderedJson>(
          without_turns(*whole, starts[turn]));
    }
    return encode_chat_tokens(wishes, context).size() +
        static_cast<size_t>(std::max(answer, 1)) <=
        static_cast<size_t>(context_length);
  };
  if (starts.size() < 2 || fits(0)) {
    return;
  }
  size_t low = 1;
  size_t high = starts.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  wishes.messages =
      std::make_shared<const OrderedJson>(without_turns(*whole, starts[low]));
}

// The request's fields that say what the model reads and how it answers.
ChatWishes read_wishes(
    const FieldReader& fields,
    const Context& context,
    ResponseRequest& out,
    OrderedJson& echo) {
  ChatWishes wishes;
  fields.string("model", 1024);  // the caller chose context.model by it
  auto turns = earlier_turns(fields, context, out.previous_id);
  const OrderedJson earlier = items_of_turns(turns);
  const OrderedJson input = read_response_input(fields, earlier, context);
  const std::string instructions = fields.string("instructions").value_or("");
  ConversationList list;
  if (!instructions.empty()) {
    list.add_text("system", instructions, false);
  }
  add_items(list, earlier);
  add_items(list, input);
  if (list.messages().empty()) {
    fields.refuse("input", "must not be empty", "invalid_value");
  }
  wishes.messages = std::make_shared<const OrderedJson>(list.messages());
  out.input = std::make_shared<const OrderedJson>(input);
  auto max_tokens = fields.integer("max_output_tokens", 1, INT_MAX);
  if (max_tokens) {
    wishes.max_tokens = static_cast<int>(*max_tokens);
  }
  if (auto budget = fields.integer("thinking_budget", 0, INT_MAX)) {
    wishes.thinking_budget = static_cast<int>(*budget);
  }
  echo["instructions"] =
      instructions.empty() ? OrderedJson() : OrderedJson(instructions);
  echo["previous_response_id"] =
      out.previous_id.empty() ? OrderedJson() : OrderedJson(out.previous_id);
  echo["max_output_tokens"] =
      max_tokens ? OrderedJson(*max_tokens) : OrderedJson();
  wishes.tools = read_response_tools(fields, context.limits, echo);
  echo["text"] = read_text_format(fields, context.limits, wishes);
  echo["reasoning"] = read_reasoning(fields, wishes, out.summary);
  auto truncation = fields.word("truncation", {"auto", "disabled"});
  echo["truncation"] = truncation.value_or("disabled");
  if (truncation == "auto") {
    leave_out_turns(wishes, context);
  }
  return wishes;
}

// Errors of the prompt name the field that it has here.
template <typename Function>
auto with_input_error(Function&& function) {
  try {
    return function();
  } catch (const RequestError& error) {
    if (error.param() != "messages") {
      throw;
    }
    std::string message = error.what();
    constexpr std::string_view kPlace = "[messages]";
    if (message.starts_with(kPlace)) {
      message.replace(0, kPlace.size(), "[input]");
    }
    throw RequestError(error.status(), message, "input", error.code());
  }
}

}  // namespace

ResponseRequest read_response_request(
    const OrderedJson& body,
    const Context& context) {
  ResponseRequest out;
  const FieldReader fields(
      body,
      response_fields(),
      context.limits.strict,
      out.ignored);
  with_input_error([&] {
    check_background(fields);
    OrderedJson echo = OrderedJson::object();
    const ChatWishes wishes = read_wishes(fields, context, out, echo);
    engine::Request base;
    base.model = context.model->name;
    base.adapter = read_adapter(fields);
    base.sampling = read_sampling(fields, context);
    base.stop = read_stop(fields, "stop", context.limits);
    read_include(fields, context.limits, base, out.encrypted);
    echo["metadata"] = read_metadata(fields);
    echo["temperature"] = rounded(base.sampling.temperature);
    echo["top_p"] = rounded(base.sampling.top_p);
    echo["top_logprobs"] = base.top_logprobs.value_or(0);
    out.stream = fields.boolean("stream").value_or(false);
    fields.object("stream_options");  // its fields are hints
    if (auto cache = fields.object("prompt_cache_options")) {
      if (cache->boolean("prewarm").value_or(false)) {
        cache->refuse("prewarm", "must be false", "unsupported_value");
      }
    }
    out.store = read_store(fields, context);
    out.plan = plan_chat(std::move(base), wishes, context);
    out.echo = std::make_shared<const OrderedJson>(std::move(echo));
  });
  return out;
}

std::string count_response_tokens(
    const OrderedJson& body,
    const Context& context,
    std::vector<std::string>& ignored) {
  const FieldReader fields(
      body,
      response_fields(),
      context.limits.strict,
      ignored);
  return with_input_error([&] {
    ResponseRequest unused;
    OrderedJson echo = OrderedJson::object();
    const ChatWishes wishes = read_wishes(fields, context, unused, echo);
    if (const auto& given = wishes.constraint) {
      check_constraint(given->constraint, *context.model, given->param);
    }
    return write_json(
        {{"object", "response.input_tokens"},
         {"input_tokens", encode_chat_tokens(wishes, context).size()}});
  });
}

}  // namespace mlxx::api
