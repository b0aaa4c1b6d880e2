#include "mlxx/text/chat_template.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>

#include <nlohmann/json.hpp>

#include "mlxx/text/message_shape.h"
#include "mlxx/text/special_literals.h"
#include "mlxx/text/tokenizer_impl.h"

namespace mlxx::text {

namespace {

constexpr const char* kPlace = "chat template";

// What a caller's extra variables may not replace.
constexpr std::array kReserved = {
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "bos_token",
    "eos_token",
    "chat_template",
    "raise_exception",
    "strftime_now",
};

std::string dump(const OrderedJson& json) {
  try {
    return json.dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::invalid_request, kPlace, "a message is not valid UTF-8");
  }
}

void check_messages(const OrderedJson& messages) {
  if (!messages.is_array() || messages.empty()) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "messages must be a list with at least one message");
  }
}

OrderedJson extra_variables(const RenderOptions& options) {
  OrderedJson extra = parse_ordered_json(options.extra_json, kPlace);
  if (!extra.is_object()) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "template variables must be a JSON object");
  }
  for (const char* reserved : kReserved) {
    if (extra.contains(reserved)) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "the template variable '{}' may not be set",
          reserved);
    }
  }
  return extra;
}

}  // namespace

bool is_reserved_variable(std::string_view name) {
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

struct ChatTemplate::Impl {
  MlxxTemplate* handle = nullptr;
  std::string bos_token;
  std::string eos_token;
  MessageShape shape;

  ~Impl() {
    mlxx_template_free(handle);
  }

  std::string run(const OrderedJson& context, std::optional<int64_t> unix_time)
      const;
  OrderedJson context(
      OrderedJson messages,
      const OrderedJson& tools,
      const OrderedJson& extra) const;
  std::string render(
      OrderedJson messages,
      const OrderedJson& tools,
      const OrderedJson& extra,
      const RenderOptions& options,
      const std::string& mark) const;
};

std::string ChatTemplate::Impl::run(
    const OrderedJson& context,
    std::optional<int64_t> unix_time) const {
  std::string text = dump(context);
  MlxxBytes rendered{}, error{};
  int64_t now = unix_time.value_or(std::time(nullptr));
  int code = mlxx_template_render(
      handle,
      byte_pointer(text),
      text.size(),
      now,
      &rendered,
      &error);
  check_rust(code, error, ErrorKind::invalid_request, kPlace);
  return take_string(rendered);
}

OrderedJson ChatTemplate::Impl::context(
    OrderedJson messages,
    const OrderedJson& tools,
    const OrderedJson& extra) const {
  OrderedJson out = extra;
  out["messages"] = std::move(messages);
  bool none = tools.is_array() && tools.empty();
  out["tools"] = none ? OrderedJson(nullptr) : tools;
  out["documents"] = nullptr;
  out["add_generation_prompt"] = false;
  out["bos_token"] = bos_token;
  out["eos_token"] = eos_token;
  return out;
}

// `mark` is a character that is in no message; it stands where the answer's
// prefix ends when a message is continued.
std::string ChatTemplate::Impl::render(
    OrderedJson messages,
    const OrderedJson& tools,
    const OrderedJson& extra,
    const RenderOptions& options,
    const std::string& mark) const {
  if (options.continue_final_message) {
    OrderedJson& last = messages.back();
    if (!last["content"].is_string()) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "the message to continue has no text");
    }
    // A template that strips the content takes the space behind the mark.
    last["content"] = last["content"].get<std::string>() + mark + " ";
  }
  OrderedJson variables =
      context(reshape_messages(std::move(messages), shape), tools, extra);
  variables["add_generation_prompt"] =
      options.add_generation_prompt && !options.continue_final_message;
  std::string out = run(variables, options.unix_time);
  if (!options.continue_final_message) {
    return out;
  }
  size_t end = out.rfind(mark);
  if (end == std::string::npos) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "the template drops the text of the message to continue");
  }
  bool stripped = out.compare(end + mark.size(), 1, " ") != 0;
  out.resize(end);
  while (stripped && !out.empty() &&
         std::isspace(static_cast<unsigned char>(out.back()))) {
    out.pop_back();
  }
  return out;
}

std::shared_ptr<const ChatTemplate> ChatTemplate::compile(
    std::string_view source,
    std::string bos_token,
    std::string eos_token) {
  auto impl = std::make_unique<Impl>();
  MlxxBytes error{};
  int code = mlxx_template_new(
      byte_pointer(source),
      source.size(),
      &impl->handle,
      &error);
  check_rust(code, error, ErrorKind::bad_file, kPlace);
  impl->bos_token = std::move(bos_token);
  impl->eos_token = std::move(eos_token);
  impl->shape = find_message_shape([&](const OrderedJson& messages) {
    return impl->run(
        impl->context(messages, nullptr, OrderedJson::object()),
        0);
  });
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(
    const OrderedJson& messages,
    const OrderedJson& tools,
    const RenderOptions& options) const {
  check_messages(messages);
  OrderedJson extra = extra_variables(options);
  OrderedJson normal = normalize_messages(messages);
  return impl_->render(
      normal,
      tools,
      extra,
      options,
      unused_noncharacters(dump(normal), 1)[0]);
}

std::string ChatTemplate::render_context(
    const OrderedJson& context,
    std::optional<int64_t> unix_time) const {
  return impl_->run(context, unix_time);
}

std::vector<int32_t> ChatTemplate::encode(
    const Tokenizer& tokenizer,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const RenderOptions& options) const {
  check_messages(messages);
  OrderedJson extra = extra_variables(options);
  OrderedJson normal = normalize_messages(messages);
  auto marks =
      unused_noncharacters(dump(normal) + dump(tools) + dump(extra), 2);
  SpecialLiterals literals(tokenizer, marks[1]);
  std::string text = impl_->render(
      literals.break_up(normal),
      literals.break_up(tools),
      literals.break_up(extra),
      options,
      marks[0]);
  return literals.encode(text);
}

const std::string* select_chat_template(
    const std::vector<std::pair<std::string, std::string>>& templates,
    bool has_tools) {
  auto find = [&](std::string_view wanted) -> const std::string* {
    for (const auto& [name, source] : templates) {
      if (name == wanted) {
        return &source;
      }
    }
    return nullptr;
  };
  if (has_tools) {
    if (const std::string* source = find("tool_use")) {
      return source;
    }
  }
  if (const std::string* source = find("default")) {
    return source;
  }
  return templates.size() == 1 ? &templates[0].second : nullptr;
}

bool opens_thinking(std::string_view prompt) {
  while (!prompt.empty() && (prompt.back() == '\n' || prompt.back() == ' ')) {
    prompt.remove_suffix(1);
  }
  for (std::string_view tag :
       {"<think>",
        "<thinking>",
        "<thought>",
        "<reasoning>",
        "<|begin_of_thought|>",
        "<|START_THINKING|>",
        "<seed:think>",
        "[THINK]",
        "◁think▷"}) {
    if (prompt.ends_with(tag)) {
      return true;
    }
  }
  return false;
}

}  // namespace mlxx::text
