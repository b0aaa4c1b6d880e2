#pragma once

#include <memory>
#include <optional>
#include <string>

#include "mlxx/api/answer.h"
#include "mlxx/api/chat_tools.h"
#include "mlxx/api/response_constraint.h"
#include "mlxx/text/tool_format.h"

// What the chat endpoints of all protocols have in common: from a conversation
// to the engine's request and to what reads the answer.
namespace mlxx::api {

// How a conversation becomes a prompt.
struct PromptWishes {
  SharedJson variables;          // of the template; null for none
  std::optional<bool> thinking;  // absent: the template's default
  std::string effort;            // "low", "medium", "high" or ""
  bool continue_final_message = false;
  bool add_generation_prompt = true;
  std::string chat_template;  // in place of the model's; "" for that
};

struct ChatWishes {
  SharedJson messages;  // as read_messages() gives them
  ChatTools tools;
  PromptWishes prompt;
  std::optional<GivenConstraint> constraint;
  std::optional<int> thinking_budget;
  std::optional<int> max_tokens;  // -1: all there is
};

struct ChatPlan {
  engine::Request request;
  const text::ToolFormat* format = nullptr;  // null: nothing to tell apart
  std::optional<text::ReasoningFormat> reasoning;
  SharedJson callable;  // tools; null for none

  // One for each choice; null if all text is content.
  std::unique_ptr<text::AnswerParser> make_parser() const;
};

// `base` has what read_generation() filled in. Errors are RequestErrors of the
// fields of OpenAI's chat endpoint: messages, tools, response_format...
ChatPlan plan_chat(
    engine::Request base,
    const ChatWishes& wishes,
    const Context& context);

// The prompt as text, for /apply-template.
std::string render_chat_text(const ChatWishes& wishes, const Context& context);
// As many tokens as plan_chat() would give the prompt.
std::vector<int32_t> encode_chat_tokens(
    const ChatWishes& wishes,
    const Context& context);

// Refuses names in chat_template_kwargs that only the server sets.
void check_template_variables(
    const OrderedJson& variables,
    const std::string& param);

}  // namespace mlxx::api
