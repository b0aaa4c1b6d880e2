#pragma once

#include <functional>
#include <string>

#include "mlxx/base/json.h"

namespace mlxx::text {

// In which form a template takes what it can take in one form only.
struct MessageShape {
  // Content as a list of {"type": "text", "text": ...} instead of a string.
  bool text_parts = false;
  // `arguments` of tool calls as JSON text instead of an object.
  bool string_arguments = false;
};

// Found by rendering small conversations. `render` renders a list of messages
// (which are final, not to be normalised) and throws Error as usual.
MessageShape find_message_shape(
    const std::function<std::string(const OrderedJson& messages)>& render);

// Normalised messages (see normalize_messages) in that form.
OrderedJson reshape_messages(OrderedJson messages, const MessageShape& shape);

}  // namespace mlxx::text
