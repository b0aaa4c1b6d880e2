#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

struct RenderOptions {
  bool add_generation_prompt = true;
  // The last message is an assistant's and is continued, not closed.
  bool continue_final_message = false;
  // More variables for the template, as JSON (enable_thinking and the like).
  // Reserved names (messages, tools, add_generation_prompt, bos_token...) are
  // refused with invalid_request.
  std::string extra_json = "{}";
  // strftime_now reads this clock; absent means the system's.
  std::optional<int64_t> unix_time;
};

// Whether a caller's extra variables may not have that name.
bool is_reserved_variable(std::string_view name);

// A compiled chat template (Jinja as transformers runs it). Immutable and
// thread-safe.
class ChatTemplate {
 public:
  // bad_file with line and construct if the source does not compile or uses
  // what is refused. bos/eos are the strings the template sees.
  static std::shared_ptr<const ChatTemplate> compile(
      std::string_view source,
      std::string bos_token,
      std::string eos_token);
  ~ChatTemplate();

  // `messages` is an OpenAI-style list, normalised here (see below) and given
  // in the form that the template takes: content as text or as a list of
  // parts, tool-call arguments as an object or as JSON text. `tools` is a list
  // or null. A template that raises gives invalid_request with the template's
  // own message, one that works too long too.
  std::string render(
      const OrderedJson& messages,
      const OrderedJson& tools,
      const RenderOptions& options = {}) const;

  // Renders with exactly these variables, nothing added or changed.
  std::string render_context(
      const OrderedJson& context,
      std::optional<int64_t> unix_time = std::nullopt) const;

  // Rendered and tokenised: control tokens of the template's own text are
  // parsed, those inside messages, tools and extra variables stay plain text.
  // No BOS is added beyond the template's own.
  std::vector<int32_t> encode(
      const Tokenizer& tokenizer,
      const OrderedJson& messages,
      const OrderedJson& tools,
      const RenderOptions& options = {}) const;

  struct Impl;

 private:
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Messages as templates expect them: null content becomes "", a list of text
// parts one string, `arguments` of tool calls an object where it is valid
// JSON, keys with null dropped, reasoning under the names reasoning_content
// and thinking. invalid_request for what is no message.
OrderedJson normalize_messages(const OrderedJson& messages);

// True if the rendered prompt ends in a thinking block that is open, so that
// the answer starts with reasoning and not with text.
bool opens_thinking(std::string_view rendered_prompt);

// The named template to use: "tool_use" when tools are given and there is
// one, else "default", else the only one. nullptr if the list is empty.
const std::string* select_chat_template(
    const std::vector<std::pair<std::string, std::string>>& templates,
    bool has_tools);

}  // namespace mlxx::text
