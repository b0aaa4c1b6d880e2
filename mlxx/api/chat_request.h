#pragma once

#include <string>
#include <vector>

#include "mlxx/api/answer.h"
#include "mlxx/api/chat_plan.h"

namespace mlxx::api {

// The body of /v1/chat/completions.
struct ChatRequest {
  ChatPlan plan;
  bool stream = false;
  bool include_usage = false;
  std::vector<std::string> ignored;
};
ChatRequest read_chat(const OrderedJson& body, const Context& context);

// {"prompt": ...}: the text that a chat body becomes, for /apply-template.
std::string apply_template(const OrderedJson& body, const Context& context);

}  // namespace mlxx::api
