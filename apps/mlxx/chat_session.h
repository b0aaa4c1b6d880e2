#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/mlxx/generate_options.h"
#include "mlxx/generate/generate.h"
#include "mlxx/generate/pipeline.h"
#include "mlxx/generate/sequence.h"

namespace mlxx::apps {

// What a line of a chat means.
struct ChatLine {
  enum class Kind { message, reset, system, exit, help, empty, unknown };
  Kind kind;
  std::string text;  // the message, the system prompt, or the unknown command
};

// A line that starts with a slash is a command; with two, a message that
// starts with one.
ChatLine parse_chat_line(std::string_view line);

inline constexpr const char* kChatHelp =
    "/reset        forget the conversation\n"
    "/system TEXT  set the system message and forget the conversation;\n"
    "              without TEXT, go back to the chat template's own\n"
    "/exit         leave; so does Ctrl-D\n"
    "/help         show this\n"
    "Ctrl-C stops an answer. A message that starts with / takes one more /.\n";

// A conversation with its decoding state: a turn computes only what is new.
class ChatSession {
 public:
  ChatSession(const generate::Pipeline& pipeline, const AnswerOptions& options);

  // Answers `message`. A stopped answer stays in the conversation as far as it
  // came; after an error the conversation is as it was before. The seed of the
  // options is the one of the first turn, each later turn has the next.
  generate::GenerateResult answer(
      const std::string& message,
      const generate::GenerateOptions& options,
      const generate::OnDelta& on_delta);

  void reset();
  // Also resets.
  void set_system_prompt(std::optional<std::string> system_prompt);

 private:
  struct Message {
    const char* role;
    std::string content;
  };

  const generate::Pipeline& pipeline_;
  text::RenderOptions render_;
  std::optional<std::string> system_prompt_;
  std::vector<Message> messages_;
  generate::Sequence sequence_;
  int64_t turns_ = 0;
};

}  // namespace mlxx::apps
