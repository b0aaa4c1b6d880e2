#pragma once

#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/capi/mlxx.h"
#include "mlxx/text/chat_template.h"

namespace mlxx::capi {

// A checked mlxx_chat.
struct ChatRequest {
  OrderedJson messages;
  OrderedJson tools;  // null: none
  text::RenderOptions render;
};

// invalid_request that names the field.
ChatRequest read_chat(const mlxx_chat* chat);

}  // namespace mlxx::capi
