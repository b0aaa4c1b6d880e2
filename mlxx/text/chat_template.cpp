#include "mlxx/text/chat_template.h"

#include <array>
#include <ctime>

#include <nlohmann/json.hpp>

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

// Stands where the answer's prefix ends when a message is continued; a
// noncharacter, so that no template has it.
constexpr const char* kContinued = "\uFDED";

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

}  // namespace

struct ChatTemplate::Impl {
  MlxxTemplate* handle = nullptr;
  std::string bos_token;
  std::string eos_token;

  ~Impl() {
    mlxx_template_free(handle);
  }

  std::string render(
      OrderedJson messages,
      const OrderedJson& tools,
      const RenderOptions& options) const;
};

std::string ChatTemplate::Impl::render(
    OrderedJson messages,
    const OrderedJson& tools,
    const RenderOptions& options) const {
  OrderedJson context = OrderedJson::object();
  OrderedJson extra = parse_ordered_json(options.extra_json, kPlace);
  if (!extra.is_object()) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "template variables must be a JSON object");
  }
  for (auto& [name, value] : extra.items()) {
    for (const char* reserved : kReserved) {
      if (name == reserved) {
        fail(
            ErrorKind::invalid_request,
            kPlace,
            "the template variable '{}' may not be set",
            name);
      }
    }
    context[name] = value;
  }
  if (options.continue_final_message) {
    OrderedJson& last = messages.back();
    if (!last.contains("content") || !last["content"].is_string()) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "the message to continue has no text");
    }
    last["content"] = last["content"].get<std::string>() + kContinued;
  }
  context["messages"] = std::move(messages);
  context["tools"] = tools;
  context["documents"] = nullptr;
  context["add_generation_prompt"] =
      options.add_generation_prompt && !options.continue_final_message;
  context["bos_token"] = bos_token;
  context["eos_token"] = eos_token;
  std::string text = dump(context);

  MlxxBytes rendered{}, error{};
  int64_t now = options.unix_time.value_or(std::time(nullptr));
  int code = mlxx_template_render(
      handle,
      byte_pointer(text),
      text.size(),
      now,
      &rendered,
      &error);
  check_rust(code, error, ErrorKind::invalid_request, kPlace);
  std::string out = take_string(rendered);
  if (options.continue_final_message) {
    size_t end = out.rfind(kContinued);
    if (end == std::string::npos) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "the template drops the text of the message to continue");
    }
    out.resize(end);
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
  return impl_->render(normalize_messages(messages), tools, options);
}

std::vector<int32_t> ChatTemplate::encode(
    const Tokenizer& tokenizer,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const RenderOptions& options) const {
  check_messages(messages);
  SpecialLiterals literals(tokenizer);
  OrderedJson broken_messages = literals.break_up(normalize_messages(messages));
  OrderedJson broken_tools = literals.break_up(tools);
  std::string text = impl_->render(broken_messages, broken_tools, options);
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
  for (std::string_view tag : {"<think>", "<|begin_of_thought|>", "[THINK]"}) {
    if (prompt.ends_with(tag)) {
      return true;
    }
  }
  return false;
}

}  // namespace mlxx::text
