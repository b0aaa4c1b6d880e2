#pragma once

#include <string>
#include <vector>

#include "mlxx/api/answer.h"
#include "mlxx/api/chat_plan.h"

namespace mlxx::api {

// The body of /v1/messages.
struct MessagesRequest {
  ChatPlan plan;
  bool stream = false;
  bool thinking_omitted = false;
  // max_tokens is what the context has room for, not what was asked for.
  bool fills_context = false;
  std::vector<std::string> ignored;
};
MessagesRequest read_messages_request(
    const OrderedJson& body,
    const Context& context);

}  // namespace mlxx::api
