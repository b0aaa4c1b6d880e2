#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"

namespace mlxx::text {
class ChatTemplate;
}

namespace mlxx::data {

// A conversation as its template writes it, and which parts the assistant
// wrote.
struct RenderedConversation {
  struct Span {
    size_t begin;
    size_t end;

    bool operator==(const Span&) const = default;
  };
  std::string text;
  std::vector<Span> answers;  // bytes of `text`, in order, apart
};

// What renders the conversations of a data set.
struct ConversationTemplate {
  const text::ChatTemplate& chat_template;
  int64_t unix_time = 0;  // what the template takes for now
  // Characters that are in no message.
  std::string_view mark;
};

// `messages` are final. An answer is all that a model gets to write in a turn:
// from where the template ends when it asks for one to where the next message
// begins, tokens that end a turn included. Messages before `first_answer` are
// no answers. Found from renderings of parts of the conversation; where a
// template writes a part otherwise than as the beginning of the whole, from
// what surrounds a mark inside the message.
// invalid_request if the template refuses the conversation; unsupported if it
// does not show where an answer is.
RenderedConversation render_conversation(
    const ConversationTemplate& with,
    const OrderedJson& messages,
    const OrderedJson& tools,
    size_t first_answer);

// The text alone, without looking for answers.
std::string render_conversation_text(
    const ConversationTemplate& with,
    const OrderedJson& messages,
    const OrderedJson& tools);

}  // namespace mlxx::data
