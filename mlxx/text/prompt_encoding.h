#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/text/chat_template.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

// What prompts of one model are made with. Refers to its owner's.
struct PromptParts {
  const Tokenizer& tokenizer;
  const ChatTemplate* chat_template = nullptr;  // may be null
  // Why chat_template is null although the model has one.
  std::string_view chat_template_error = {};
  // For conversations with tools, where that is another one.
  const ChatTemplate* tool_template = nullptr;
  std::string_view tool_template_error = {};
  std::optional<int32_t> bos_id = {};
  std::optional<bool> add_bos = {};  // add_bos_token, if it is said
};

// Prompt text of a raw completion -> ids, with the automatic BOS that the
// tokenizer asks for, never twice.
std::vector<int32_t> encode_raw_prompt(
    const PromptParts& parts,
    std::string_view prompt);

// An OpenAI-style list of messages -> ids, through the chat template and
// without any BOS but the template's own. `tools`: a list, or null or empty
// for none. With options.continue_final_message the last message is an
// assistant's that the answer goes on from. invalid_request, with what to do
// instead, if the model has no chat template; unsupported if it cannot be
// used.
std::vector<int32_t> encode_chat_prompt(
    const PromptParts& parts,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const RenderOptions& options);

// The text of the same prompt. Its tokens may differ: control tokens inside of
// messages are ordinary characters to encode_chat_prompt() only.
std::string render_chat_prompt(
    const PromptParts& parts,
    const OrderedJson& messages,
    const OrderedJson& tools,
    const RenderOptions& options);

}  // namespace mlxx::text
