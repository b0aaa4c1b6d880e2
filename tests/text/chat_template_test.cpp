#include "mlxx/text/chat_template.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::text {
namespace {

std::string render(
    const char* source,
    const char* messages = R"([{"role":"user","content":"hi"}])",
    const char* tools = "null",
    const RenderOptions& options = {}) {
  return ChatTemplate::compile(source, "<s>", "</s>")
      ->render(
          parse_ordered_json(messages, "test"),
          parse_ordered_json(tools, "test"),
          options);
}

std::string error_of(const char* source, const char* messages) {
  try {
    render(source, messages);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChatTemplate, ToolsKeepTheirKeyOrderAndPlainText) {
  EXPECT_EQ(
      render(
          "{{ tools | tojson }}",
          R"([{"role":"user","content":""}])",
          R"([{"b":1,"a":"x<y & 'q' /","t":"温度—","f":1.0,"n":null}])"),
      R"([{"b": 1, "a": "x<y & 'q' /", "t": "温度—", "f": 1.0, "n": null}])");
  EXPECT_EQ(
      render(
          "{{ tools | tojson(sort_keys=true, separators=(',', ':')) }}",
          R"([{"role":"user","content":""}])",
          R"({"b":[],"a":{}})"),
      R"({"a":{},"b":[]})");
  EXPECT_EQ(
      render(
          "{{ tools | tojson(indent=2) }}",
          R"([{"role":"user","content":""}])",
          R"({"a":[1,true]})"),
      "{\n  \"a\": [\n    1,\n    true\n  ]\n}");
}

TEST(ChatTemplate, TrimsBlocksAsTransformersDoes) {
  EXPECT_EQ(render("  {% if true %}\nA\n  {% endif %}\nB\n"), "A\nB");
  EXPECT_EQ(render("a\r\n{%- if true -%}\r\n b{% endif %}"), "ab");
}

TEST(ChatTemplate, ConstructsThatRealTemplatesUse) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% for m in [1,2,3] %}{% if m == 2 %}{% continue %}{% endif %}{{ m }}"
       "{% endfor %}",
       "13"},
      {"{% for m in [1,2] %}{% break %}{% endfor %}x", "x"},
      {"{% set ns = namespace(a=1) %}{% for i in [1,2] %}{% set ns.a = ns.a + "
       "i "
       "%}{% endfor %}{{ ns.a }}",
       "4"},
      {"{{ [1,2,3][::-1] | list }}{{ [1,2,3][1:] | length }}", "[3, 2, 1]2"},
      {"{{ messages[0] is mapping }}{{ messages is iterable }}{{ x is defined "
       "}}{{ tools is none }}",
       "TrueTrueFalseTrue"},
      {"{{ messages | selectattr('role', 'equalto', 'user') | list | length "
       "}}{{ messages | rejectattr('role', 'equalto', 'user') | list | length "
       "}}{{ messages | map(attribute='role') | join(',') }}",
       "10user"},
      {"{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"},
      {"{{ 'a</think>b'.split('</think>')[-1].strip() }}", "b"},
      {"{{ ' x '.strip().startswith('x') }}", "True"},
      {"{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}", "12"},
      {"{% generation %}{{ 'a' }}{% endgeneration %}", "a"},
      {"{{ 'a' ~ 1 }}{{ 'b' if false }}", "a1"},
      {"{{ bos_token }}{{ eos_token }}", "<s></s>"},
  };
  for (auto [source, expected] : cases) {
    EXPECT_EQ(render(source), expected) << source;
  }
  RenderOptions noon;
  noon.unix_time = 1'700'000'000;
  EXPECT_EQ(
      render("{{ strftime_now('%Y') }}", R"([{"role":"u"}])", "null", noon),
      "2023");
}

TEST(ChatTemplate, RaisingRefusesTheConversationWithItsOwnMessage) {
  EXPECT_EQ(
      error_of(
          "{{ raise_exception('roles must alternate') }}",
          R"([{"role":"user","content":"a"}])"),
      "[chat template] roles must alternate");
  EXPECT_NE(error_of("x", "[]"), "");
  EXPECT_NE(error_of("x", "[1]"), "");
  EXPECT_NE(error_of("x", R"([{"content":"a"}])"), "");
}

TEST(ChatTemplate, WhatWouldLoseOutputIsRefusedWhenLoaded) {
  EXPECT_NE(
      error_of(
          "{% for m in messages %}{% set x %}{% break %}{% endset %}{% endfor "
          "%}",
          R"([{"role":"user"}])"),
      "");
  EXPECT_NE(error_of("{% if %}", R"([{"role":"user"}])"), "");
  EXPECT_NE(error_of("{{ 'a'.nothing() }}", R"([{"role":"user"}])"), "");
}

TEST(ChatTemplate, ReservedVariablesCannotBeReplaced) {
  for (const char* extra :
       {R"({"chat_template":"x"})",
        R"({"messages":[]})",
        R"({"add_generation_prompt":false})",
        R"([])"}) {
    RenderOptions options;
    options.extra_json = extra;
    EXPECT_THROW(render("x", R"([{"role":"user"}])", "null", options), Error)
        << extra;
  }
  RenderOptions thinking;
  thinking.extra_json = R"({"enable_thinking":false})";
  EXPECT_EQ(
      render("{{ enable_thinking }}", R"([{"role":"user"}])", "null", thinking),
      "False");
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  RenderOptions options;
  options.continue_final_message = true;
  EXPECT_EQ(
      render(
          "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<end>"
          "{% endfor %}",
          R"([{"role":"user","content":"q"},
              {"role":"assistant","content":"The answer"}])",
          "null",
          options),
      "[user]q<end>[assistant]The answer");
}

TEST(ChatTemplate, ContinuesTextThatTheTemplateStrips) {
  RenderOptions options;
  options.continue_final_message = true;
  const char* messages = R"([{"role":"user","content":"q"},
                             {"role":"assistant","content":"Once \n"}])";
  const char* loop = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
  const char* strips =
      "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}";
  EXPECT_EQ(render(loop, messages, "null", options), "[q][Once \n");
  EXPECT_EQ(render(strips, messages, "null", options), "[q][Once");
  EXPECT_THROW(
      render("{{ messages[0].content }}", messages, "null", options),
      Error);
}

TEST(ChatTemplate, GetsContentInTheFormThatItTakes) {
  const char* messages = R"([{"role":"user","content":"hi"}])";
  const char* parts =
      "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' "
      "%}<{{ p.text }}>{% endif %}{% endfor %}{% endfor %}";
  EXPECT_EQ(render(parts, messages), "<hi>");
  EXPECT_EQ(render("{{ messages[0].content }}", messages), "hi");
}

TEST(ChatTemplate, GetsArgumentsInTheFormThatItTakes) {
  const char* call = R"([{"role":"user","content":"q"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1",
       "type":"function",
       "function":{"name":"add","arguments":"{\"a\": 2}"}}]}])";
  const char* loop = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  const char* end = "{% endfor %}{% endfor %}";
  auto with = [&](const char* body) {
    return render((std::string(loop) + body + end).c_str(), call);
  };
  EXPECT_EQ(with("{{ c.function.arguments | tojson }}"), R"({"a": 2})");
  EXPECT_EQ(
      with("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
           "{% endfor %}"),
      "a=2");
  // Concatenated with text, an object would be an error.
  EXPECT_EQ(with("{{ 'call ' + c.function.arguments }}"), R"(call {"a":2})");
}

TEST(ChatTemplate, WorkBombsEndWithAnError) {
  const char* messages = R"([{"role":"user","content":"x"}])";
  for (const char* source :
       {"{% for a in range(999) %}{% for b in range(999) %}{% for c in "
        "range(999) %}x{% endfor %}{% endfor %}{% endfor %}",
        "{{ range(1000000000) | list | length }}",
        "{{ 'x' * 1000000000 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x'.center(1000000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'x' | indent(1000000000, true) }}",
        "{% set ns = namespace(s='xxxxxxxxxx') %}{% for i in range(99) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}"}) {
    EXPECT_NE(error_of(source, messages), "") << source;
  }
}

TEST(ChatTemplate, NestingWithoutEndIsAnError) {
  const char* messages = R"([{"role":"user","content":"x"}])";
  std::string parentheses =
      "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}";
  EXPECT_NE(error_of(parentheses.c_str(), messages), "");
  std::string lists = "{{ " + std::string(5000, '[') + " }}";
  EXPECT_NE(error_of(lists.c_str(), messages), "");
  std::string blocks;
  for (int i = 0; i < 5000; ++i) {
    blocks += "{% if true %}";
  }
  EXPECT_NE(error_of(blocks.c_str(), messages), "");
  std::string formats = "{{ ";
  for (int i = 0; i < 3000; ++i) {
    formats += "'%s' % (";
  }
  EXPECT_NE(error_of(formats.c_str(), messages), "");
  std::string tools = std::string(3000, '[') + std::string(3000, ']');
  EXPECT_THROW(render("{{ tools | tojson }}", messages, tools.c_str()), Error);
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  std::string error =
      error_of("a\n\n{% if %}{% endif %}", R"([{"role":"user"}])");
  EXPECT_NE(error.find("chat:3"), std::string::npos) << error;
}

TEST(NormalizeMessages, NullContentAndCallArguments) {
  auto messages = normalize_messages(parse_ordered_json(
      R"([{"role":"assistant","content":null,"tool_calls":[
           {"id":"c1","type":"function",
            "function":{"name":"add","arguments":"{\"a\":2}"}},
           {"function":{"name":"f","arguments":"not json"}}]},
          {"role":"user","content":[{"type":"text","text":"a"},
                                    {"type":"text","text":"b"}]},
          {"role":"user","content":[]}])",
      "test"));
  EXPECT_EQ(messages[0]["content"], "");
  EXPECT_EQ(
      messages[0]["tool_calls"][0]["function"]["arguments"].dump(),
      R"({"a":2})");
  EXPECT_EQ(messages[0]["tool_calls"][1]["function"]["arguments"], "not json");
  EXPECT_EQ(messages[1]["content"], "ab");
  EXPECT_EQ(messages[2]["content"], "");

  auto reasoning = normalize_messages(parse_ordered_json(
      R"([{"role":"assistant","content":"a","reasoning":"why","name":null}])",
      "test"));
  EXPECT_EQ(reasoning[0]["reasoning_content"], "why");
  EXPECT_EQ(reasoning[0]["thinking"], "why");
  EXPECT_FALSE(reasoning[0].contains("name"));
}

TEST(SelectChatTemplate, ByNameAndNotByPosition) {
  using Templates = std::vector<std::pair<std::string, std::string>>;
  Templates both = {{"tool_use", "t"}, {"default", "d"}};
  EXPECT_EQ(*select_chat_template(both, false), "d");
  EXPECT_EQ(*select_chat_template(both, true), "t");
  EXPECT_EQ(*select_chat_template({{"rag", "r"}}, false), "r");
  EXPECT_EQ(select_chat_template({{"rag", "r"}, {"x", "y"}}, false), nullptr);
  EXPECT_EQ(select_chat_template({}, false), nullptr);
}

TEST(OpensThinking, LooksAtTheEndOfThePrompt) {
  EXPECT_TRUE(opens_thinking("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(opens_thinking("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_thinking("assistant\n"));
}

}  // namespace
}  // namespace mlxx::text
