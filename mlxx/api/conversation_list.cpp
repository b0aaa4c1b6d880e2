#include "mlxx/api/conversation_list.h"

#include <nlohmann/json.hpp>

namespace mlxx::api {

namespace {

void append(OrderedJson& message, const char* key, const std::string& text) {
  std::string whole = message.value(key, "");
  if (!whole.empty() && !text.empty()) {
    whole += '\n';
  }
  message[key] = whole + text;
}

bool is_of(const OrderedJson& messages, std::string_view role) {
  return !messages.empty() && messages.back()["role"] == role;
}

}  // namespace

ConversationList::ConversationList()
    : messages_(std::make_unique<OrderedJson>(OrderedJson::array())) {}

ConversationList::~ConversationList() = default;

OrderedJson& ConversationList::message(const std::string& role, bool join) {
  if (!join || !is_of(*messages_, role)) {
    messages_->push_back({{"role", role}, {"content", ""}});
  }
  return messages_->back();
}

void ConversationList::add_text(
    const std::string& role,
    const std::string& text,
    bool join) {
  append(message(role, join || role != "user"), "content", text);
}

void ConversationList::add_reasoning(const std::string& text) {
  append(message("assistant", true), "reasoning_content", text);
}

void ConversationList::add_call(
    const std::string& id,
    const std::string& name,
    const std::string& arguments) {
  names_[id] = name;
  OrderedJson& calls = message("assistant", true)["tool_calls"];
  if (calls.is_null()) {
    calls = OrderedJson::array();
  }
  calls.push_back(
      {{"id", id},
       {"type", "function"},
       {"function", {{"name", name}, {"arguments", arguments}}}});
}

void ConversationList::add_result(
    const std::string& id,
    const std::string& text) {
  OrderedJson result = {{"role", "tool"}, {"tool_call_id", id}};
  if (auto known = names_.find(id); known != names_.end()) {
    result["name"] = known->second;
  }
  result["content"] = text;
  messages_->push_back(std::move(result));
}

const OrderedJson& ConversationList::messages() const {
  return *messages_;
}

bool ConversationList::ends_in_call() const {
  return is_of(*messages_, "assistant") &&
      messages_->back().contains("tool_calls");
}

bool ConversationList::ends_open() {
  if (!is_of(*messages_, "assistant") || ends_in_call()) {
    return false;
  }
  if (messages_->back()["content"] != "") {
    return true;
  }
  messages_->erase(messages_->size() - 1);
  return false;
}

}  // namespace mlxx::api
