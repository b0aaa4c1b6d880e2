#include "apps/mlxx/chat_session.h"

#include <nlohmann/json.hpp>

namespace mlxx::apps {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  auto begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

ChatLine parse_chat_line(std::string_view line) {
  using Kind = ChatLine::Kind;
  std::string_view text = trimmed(line);
  if (text.empty()) {
    return {Kind::empty, {}};
  }
  if (text.front() != '/') {
    return {Kind::message, std::string(text)};
  }
  if (text.starts_with("//")) {
    return {Kind::message, std::string(text.substr(1))};
  }
  auto blank = text.find_first_of(" \t");
  std::string command(text.substr(0, blank));
  std::string rest(
      blank == std::string_view::npos ? std::string_view()
                                      : trimmed(text.substr(blank)));
  if (command == "/system") {
    return {Kind::system, rest};
  }
  if (rest.empty()) {
    if (command == "/reset" || command == "/clear") {
      return {Kind::reset, {}};
    }
    if (command == "/exit" || command == "/quit") {
      return {Kind::exit, {}};
    }
    if (command == "/help" || command == "/?") {
      return {Kind::help, {}};
    }
  }
  return {Kind::unknown, command};
}

ChatSession::ChatSession(
    const generate::Pipeline& pipeline,
    const AnswerOptions& options)
    : pipeline_(pipeline), system_prompt_(options.system_prompt) {
  render_.extra_json = options.chat_template_config;
  reset();
}

void ChatSession::reset() {
  messages_.clear();
  if (system_prompt_) {
    messages_.push_back({"system", *system_prompt_});
  }
  sequence_.clear();
}

void ChatSession::set_system_prompt(std::optional<std::string> system_prompt) {
  system_prompt_ = std::move(system_prompt);
  reset();
}

generate::GenerateResult ChatSession::answer(
    const std::string& text,
    const generate::GenerateOptions& options,
    const generate::OnDelta& on_delta) {
  OrderedJson messages = OrderedJson::array();
  auto add = [&](const char* role, const std::string& content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  for (const Message& message : messages_) {
    add(message.role, message.content);
  }
  add("user", text);
  auto prompt = generate::encode_chat_prompt(pipeline_, messages, render_);
  auto turn_options = options;
  if (options.sampling.seed) {
    turn_options.sampling.seed = static_cast<int64_t>(
        static_cast<uint64_t>(*options.sampling.seed) +
        static_cast<uint64_t>(turns_));
  }
  auto result =
      generate::generate(pipeline_, prompt, sequence_, turn_options, on_delta);
  messages_.push_back({"user", text});
  messages_.push_back({"assistant", result.text});
  ++turns_;
  return result;
}

}  // namespace mlxx::apps
