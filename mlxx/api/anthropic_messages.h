#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mlxx/api/answer.h"
#include "mlxx/api/chat_tools.h"
#include "mlxx/api/field_reader.h"
#include "mlxx/base/json.h"

namespace mlxx::api {

// system and messages of a request as the OpenAI-style list that templates
// take. `continues` is set if the last one is the assistant's, so that the
// answer goes on from it.
OrderedJson read_anthropic_messages(const FieldReader& fields, bool& continues);

// tools and tool_choice, the tools as OpenAI has them.
ChatTools read_anthropic_tools(const FieldReader& fields, const Limits& limits);

struct ThinkingChoice {
  std::optional<bool> wanted;  // absent: as the template does by itself
  std::optional<int> budget;   // tokens
  bool omitted = false;        // only a signature is sent
  std::string effort;          // "" if not said
};
ThinkingChoice read_thinking(const FieldReader& fields);

// A thinking block's signature. Of one that is omitted it holds the thinking,
// so that the next request can bring it back.
std::string thinking_signature(std::string_view thinking, bool omitted);

}  // namespace mlxx::api
