#include "mlxx/api/fields.h"
#include "mlxx/api/sampling_fields.h"

namespace mlxx::api {

namespace {

constexpr auto kHonoured = FieldStatus::honoured;
constexpr auto kHint = FieldStatus::hint;
constexpr auto kRefused = FieldStatus::refused;

constexpr std::string_view kHi = R"([{"role": "user", "content": "hi"}])";
constexpr std::string_view kText = R"([{"role": "user", "content": [)"
                                   R"({"type": "text", "text": "hi"}]}])";
constexpr std::string_view kCall =
    R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [)"
    R"({"type": "thinking", "thinking": "hm", "signature": "s"}, )"
    R"({"type": "redacted_thinking", "data": "x"}, )"
    R"({"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}, )"
    R"("caller": {"type": "direct"}, "cache_control": {"type": "ephemeral"}}]}, )"
    R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": )"
    R"("c1", "content": [{"type": "text", "text": "4"}], "is_error": false}]}])";
constexpr std::string_view kTool =
    R"([{"name": "f", "description": "d", "strict": true, "type": "custom", )"
    R"("input_schema": {"type": "object"}, "input_examples": [{}], )"
    R"("cache_control": {"type": "ephemeral"}, "eager_input_streaming": true, )"
    R"("allowed_callers": ["direct"], "defer_loading": false}])";
constexpr std::string_view kThinking =
    R"({"type": "enabled", "budget_tokens": 4, "display": "summarized"})";
constexpr std::string_view kFormat =
    R"({"format": {"type": "json_schema", "schema": {"type": "object"}}})";
constexpr std::string_view kKeepAll =
    R"({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})";
constexpr std::string_view kCached =
    "Every prompt is looked up in the cache and kept there.";

// What reading the messages, the tools and the system prompt takes: of
// /v1/messages and of /v1/messages/count_tokens.
constexpr auto kPromptFields = std::to_array<Field>({
    {"model", kHonoured, "\"tiny\"", "A name of `GET /v1/models`.", "5"},
    {"messages",
     kHonoured,
     kHi,
     "Turns of one role that follow each other are joined. A last turn of the "
     "assistant is continued.",
     "{}"},
    {"messages[].role",
     kHonoured,
     kHi,
     "user, assistant, system.",
     R"([{"role": "tool", "content": "hi"}])"},
    {"messages[].content",
     kHonoured,
     kText,
     "A string or blocks: text, tool_use, tool_result, thinking and "
     "redacted_thinking (which no model reads). Others are refused.",
     R"([{"role": "user", "content": 5}])"},
    {"messages[].content[].type",
     kHonoured,
     kText,
     "",
     R"([{"role": "user", "content": [{"type": "image", "source": {}}]}])"},
    {"messages[].content[].text",
     kHonoured,
     kText,
     "",
     R"([{"role": "user", "content": [{"type": "text", "text": 5}]}])"},
    {"messages[].content[].citations", kHint, kText, ""},
    {"messages[].content[].cache_control", kHint, kCall, kCached},
    {"messages[].content[].id", kHonoured, kCall, ""},
    {"messages[].content[].name", kHonoured, kCall, ""},
    {"messages[].content[].input",
     kHonoured,
     kCall,
     "",
     R"([{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": 5}]}])"},
    {"messages[].content[].caller", kHint, kCall, ""},
    {"messages[].content[].toolset_name",
     kRefused,
     R"([{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}, "toolset_name": "t"}]}])",
     "is not supported: there are no toolsets"},
    {"messages[].content[].tool_use_id", kHonoured, kCall, ""},
    {"messages[].content[].content",
     kHonoured,
     kCall,
     "Of tool_result: a string or text blocks."},
    {"messages[].content[].content[].type", kHonoured, kCall, "text."},
    {"messages[].content[].content[].text", kHonoured, kCall, ""},
    {"messages[].content[].content[].citations", kHint, kCall, ""},
    {"messages[].content[].content[].cache_control", kHint, kCall, kCached},
    {"messages[].content[].is_error",
     kHonoured,
     kCall,
     "Told to the model as the word Error before the result."},
    {"messages[].content[].thinking",
     kHonoured,
     kCall,
     "Given to the template, which may drop it."},
    {"messages[].content[].signature",
     kHonoured,
     kCall,
     "Read where the thinking was omitted; nothing else is checked."},
    {"messages[].content[].data", kHint, kCall, ""},
    {"system",
     kHonoured,
     R"([{"type": "text", "text": "hi"}])",
     "A string or text blocks.",
     "5"},
    {"system[].type",
     kHonoured,
     R"([{"type": "text", "text": "hi"}])",
     "text."},
    {"system[].text",
     kHonoured,
     R"([{"type": "text", "text": "hi"}])",
     "",
     R"([{"type": "text"}])"},
    {"system[].citations", kHint, R"([{"type": "text", "text": "hi"}])", ""},
    {"system[].cache_control",
     kHint,
     R"([{"type": "text", "text": "hi"}])",
     kCached},
    {"tools",
     kHonoured,
     kTool,
     "Tools of the client; others are refused.",
     R"([{"type": "web_search_20250305", "name": "web_search"}])"},
    {"tools[].type", kHonoured, kTool, "custom."},
    {"tools[].name", kHonoured, kTool, "", R"([{"input_schema": {}}])"},
    {"tools[].description", kHonoured, kTool, ""},
    {"tools[].input_schema",
     kHonoured,
     kTool,
     "",
     R"([{"name": "f", "input_schema": 5}])"},
    {"tools[].input_examples",
     kHonoured,
     kTool,
     "Added to the description.",
     R"([{"name": "f", "input_schema": {}, "input_examples": 5}])"},
    {"tools[].strict",
     kHonoured,
     kTool,
     "The input of a strict tool follows its schema.",
     R"([{"name": "f", "input_schema": {}, "strict": 5}])"},
    {"tools[].allowed_callers",
     kHonoured,
     kTool,
     "direct.",
     R"([{"name": "f", "input_schema": {}, "allowed_callers": ["code_execution_20250825"]}])"},
    {"tools[].defer_loading",
     kHonoured,
     kTool,
     "false.",
     R"([{"name": "f", "input_schema": {}, "defer_loading": true}])"},
    {"tools[].cache_control", kHint, kTool, kCached},
    {"tools[].eager_input_streaming",
     kHint,
     kTool,
     "The input comes once it is complete and valid."},
    {"tool_choice",
     kHonoured,
     R"({"type": "none"})",
     "",
     R"({"type": "tool", "name": "nope"})"},
    {"tool_choice.type",
     kHonoured,
     R"({"type": "none"})",
     "auto, any, tool, none; enforced on every token.",
     R"({"type": "always"})"},
    {"tool_choice.name", kHonoured, R"({"type": "none"})", "Of tool."},
    {"tool_choice.disable_parallel_tool_use",
     kHonoured,
     R"({"type": "auto", "disable_parallel_tool_use": true})",
     "",
     R"({"type": "auto", "disable_parallel_tool_use": 1})"},
    {"thinking",
     kHonoured,
     kThinking,
     "Absent: what the model's template does by itself.",
     "5"},
    {"thinking.type",
     kHonoured,
     kThinking,
     "enabled, adaptive, disabled.",
     R"({"type": "between_tools"})"},
    {"thinking.budget_tokens",
     kHonoured,
     kThinking,
     "Thinking is ended after so many tokens; less than max_tokens, and any "
     "number from 1 on.",
     R"({"type": "enabled", "budget_tokens": 0})"},
    {"thinking.display",
     kHonoured,
     kThinking,
     "summarized (the thinking as it is) or omitted (its signature holds it).",
     R"({"type": "adaptive", "display": "x"})"},
    {"output_config", kHonoured, kFormat, "", "5"},
    {"output_config.effort",
     kHonoured,
     R"({"effort": "low"})",
     "low, medium, high, xhigh, max: for templates with levels of reasoning.",
     R"({"effort": "huge"})"},
    {"output_config.format",
     kHonoured,
     kFormat,
     "Enforced on every token of the text.",
     R"({"format": {"type": "xml"}})"},
    {"output_config.format.type", kHonoured, kFormat, "json_schema."},
    {"output_config.format.schema",
     kHonoured,
     kFormat,
     "400 for what cannot be enforced.",
     R"({"format": {"type": "json_schema", "schema": {"type": "wat"}}})"},
    {"output_format",
     kHonoured,
     R"({"type": "json_schema", "schema": {"type": "object"}})",
     "The earlier name of output_config.format.",
     R"({"type": "xml"})"},
    {"output_format.type",
     kHonoured,
     R"({"type": "json_schema", "schema": {"type": "object"}})",
     ""},
    {"output_format.schema",
     kHonoured,
     R"({"type": "json_schema", "schema": {"type": "object"}})",
     ""},
    {"cache_control", kHint, R"({"type": "ephemeral"})", kCached},
    {"speed", kHint, "\"standard\"", "There is one speed."},
    {"user_profile_id", kHint, "\"u\"", ""},
    {"workspace_id", kHint, "\"w\"", ""},
    {"mcp_servers",
     kRefused,
     R"([{"type": "url"}])",
     "is not supported: the server runs no tools"},
    {"context_management",
     kHonoured,
     kKeepAll,
     "Edits that keep everything.",
     R"({"edits": [{"type": "clear_tool_uses_20250919"}]})"},
    {"context_management.edits", kHonoured, kKeepAll, ""},
    {"context_management.edits[].type",
     kHonoured,
     kKeepAll,
     "clear_thinking_20251015."},
    {"context_management.edits[].keep",
     kHonoured,
     kKeepAll,
     "all.",
     R"({"edits": [{"type": "clear_thinking_20251015", "keep": 1}]})"},
});

constexpr auto kAnswerFields = std::to_array<Field>({
    {"max_tokens",
     kHonoured,
     "5",
     "Required; of thinking and text together.",
     "0"},
    {"stop_sequences", kHonoured, R"(["END"])", "", "[5]"},
    {"stream", kHonoured, "true", "Server-sent events.", "\"yes\""},
    {"adapters",
     kHonoured,
     "\"none\"",
     "Name of a mounted adapter, `a+b` for several at once, `none`. An "
     "extension.",
     "[1]"},
    {"metadata", kHint, R"({"user_id": "u"})", ""},
    {"service_tier", kHint, "\"auto\"", "There is one tier."},
    {"container",
     kRefused,
     "\"c\"",
     "is not supported: the server runs no tools"},
    {"diagnostics", kRefused, "{}", "is not supported"},
    {"inference_geo",
     kRefused,
     "\"us\"",
     "is not supported: the model runs where the server is"},
});

constexpr auto kSampling = [] {
  auto fields = kSamplingFields;
  for (Field& field : fields) {
    if (field.path == "temperature") {
      field.note = "0 to 1; 0 is greedy. The default is the model's own.";
      field.refused_example = "1.5";
    }
  }
  return fields;
}();

constexpr auto kMessagesFields =
    joined_fields(kPromptFields, kAnswerFields, kSampling);

constexpr FieldTable kMessages = {
    "POST /v1/messages",
    R"({"model": "tiny", "max_tokens": 16, )"
    R"("messages": [{"role": "user", "content": "hi"}]})",
    kMessagesFields,
};

constexpr FieldTable kCount = {
    "POST /v1/messages/count_tokens",
    R"({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]})",
    kPromptFields,
};

}  // namespace

const FieldTable& message_fields() {
  return kMessages;
}

const FieldTable& count_tokens_fields() {
  return kCount;
}

}  // namespace mlxx::api
