#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/text/grammar.h"
#include "mlxx/text/tool_format.h"
#include "tests/text/grammar_walk.h"
#include "tests/text/small_schema_check.h"
#include "tests/text/tool_call_corpus.h"

namespace mlxx::text {
namespace {

OrderedJson tools_of(const char* text) {
  return parse_ordered_json(text, "tools");
}

const OrderedJson& strict_tools() {
  static const OrderedJson tools = tools_of(R"([
  {"type": "function", "function": {"name": "get_weather", "strict": true,
    "description": "\"::= \\ \n <tool_call> ` /x/ 😀",
    "parameters": {"type": "object", "properties": {
      "city": {"type": "string", "description": "\"}]"},
      "days": {"type": "integer", "minimum": 1, "maximum": 9},
      "unit": {"enum": ["celsius", "fahrenheit"]},
      "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]$"}},
      "required": ["city", "unit"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "set-all", "strict": true,
    "parameters": {"type": "object", "properties": {
      "on": {"type": "boolean"},
      "list": {"type": "array", "items": {"$ref": "#/$defs/color"},
               "minItems": 1, "maxItems": 3},
      "map": {"type": "object", "properties": {"a": {"type": "integer",
               "minimum": 0, "maximum": 99}, "b": {"$ref": "#/$defs/color"}},
               "required": ["a"], "additionalProperties": false},
      "short": {"type": "string", "maxLength": 5},
      "maybe": {"type": ["boolean", "null"]}},
      "required": ["on", "list"], "additionalProperties": false,
      "$defs": {"color": {"enum": ["red", "blue"]}}}}},
  {"type": "function", "function": {"name": "now", "strict": true}}])");
  return tools;
}

ParsedAnswer read_back(const ToolFormat& format, const std::string& text) {
  auto parser = format.make_parser(std::nullopt, false, strict_tools());
  ParsedAnswer answer;
  answer.take(parser->step(text));
  answer.take(parser->flush());
  return answer;
}

void expect_valid_calls(const ParsedAnswer& answer, const std::string& text) {
  for (const auto& [name, arguments] : answer.calls) {
    OrderedJson schema;
    bool known = false;
    for (const OrderedJson& tool : strict_tools()) {
      if (tool["function"]["name"] == name) {
        known = true;
        schema = tool["function"].value("parameters", OrderedJson::object());
      }
    }
    EXPECT_TRUE(known) << name << " in " << text;
    try {
      OrderedJson value = parse_ordered_json(arguments, "arguments");
      EXPECT_EQ(schema_fault(schema, schema, value), "") << arguments << "\n"
                                                         << text;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << text;
    }
  }
}

class EveryFormat : public testing::TestWithParam<bool> {};

TEST_P(EveryFormat, WalksOfDemandedCallsAreValidCalls) {
  std::mt19937 random(5);
  for (const ToolFormat* format : tool_formats()) {
    SCOPED_TRACE(std::string(format->name()));
    Grammar grammar(*format, GetParam());
    ToolUse use;
    use.tools = &strict_tools();
    use.tokenizer = grammar.tokenizer.get();
    for (int round = 0; round < 8; ++round) {
      use.choice = round % 3 == 0 ? ToolChoice::named : ToolChoice::required;
      use.named = round % 2 == 0 ? "get_weather" : "set-all";
      use.parallel = round % 4 == 1;
      std::string lark = *format->constraint(use);
      std::string text = walk(grammar, lark, ends_of(format->name()), random);
      ParsedAnswer answer = read_back(*format, text);
      EXPECT_GE(answer.calls.size(), 1u) << text;
      EXPECT_EQ(answer.content, "") << text;
      if (!use.parallel) {
        EXPECT_EQ(answer.calls.size(), 1u) << text;
      }
      if (use.choice == ToolChoice::named) {
        for (const auto& call : answer.calls) {
          EXPECT_EQ(call.first, use.named);
        }
      }
      expect_valid_calls(answer, text);
    }
  }
}

// Free text, and calls in it that are held to their schemas.
TEST_P(EveryFormat, FreeChoiceOfStrictTools) {
  std::mt19937 random(9);
  for (const ToolFormat* format : tool_formats()) {
    SCOPED_TRACE(std::string(format->name()));
    Grammar grammar(*format, GetParam());
    ToolUse use;
    use.tools = &strict_tools();
    use.tokenizer = grammar.tokenizer.get();
    std::string automatic = *format->constraint(use);
    use.choice = ToolChoice::required;
    std::string required = *format->constraint(use);
    bool harmony = format->name() == "harmony";
    std::string text =
        harmony ? "<|channel|>final<|message|>So <b> it is." : "So <b> it is.";
    EXPECT_TRUE(grammar.accepts(automatic, text));
    EXPECT_FALSE(grammar.accepts(required, text));
    for (int round = 0; round < 5; ++round) {
      std::string call =
          walk(grammar, required, ends_of(format->name()), random);
      EXPECT_TRUE(grammar.accepts(automatic, call)) << call;
      bool bare = format->name() == "llama3_json";
      if (!bare && !harmony) {
        EXPECT_TRUE(grammar.accepts(automatic, "Well: " + call)) << call;
      }
      // A call that is not among the tools.
      size_t at = call.find("get_weather");
      if (at != call.npos) {
        std::string wrong = call;
        wrong.replace(at, 11, "get_whether");
        EXPECT_FALSE(grammar.accepts(automatic, wrong)) << wrong;
      }
      if (size_t unit = call.find("celsius"); unit != call.npos) {
        std::string wrong = call;
        wrong.replace(unit, 7, "kelvins");
        EXPECT_FALSE(grammar.accepts(required, wrong)) << wrong;
      }
    }
    use.choice = ToolChoice::automatic;
    use.parallel = false;
    std::string single = *format->constraint(use);
    use.choice = ToolChoice::named;
    use.named = "now";
    std::string one = walk(
        grammar,
        *format->constraint(use),
        ends_of(format->name()),
        random);
    EXPECT_TRUE(grammar.accepts(single, one)) << one;
    if (!harmony) {
      EXPECT_FALSE(grammar.accepts(single, one + one)) << one;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    ToolConstraint,
    EveryFormat,
    testing::Values(false, true),
    [](const auto& info) {
      return info.param ? "ControlTokens" : "PlainText";
    });

// Corpus cases that a model held to a grammar could have written.
TEST(ToolConstraint, NothingToConstrain) {
  OrderedJson tools = corpus_tools();
  for (const ToolFormat* format : tool_formats()) {
    ToolUse use;
    use.tools = &tools;
    EXPECT_FALSE(format->constraint(use)) << format->name();
    use.choice = ToolChoice::none;
    EXPECT_FALSE(format->constraint(use));
    use.tools = nullptr;
    use.choice = ToolChoice::automatic;
    EXPECT_FALSE(format->constraint(use));
  }
}

std::string error_of(const ToolFormat& format, const OrderedJson& tools) {
  ToolUse use;
  use.tools = &tools;
  use.choice = ToolChoice::required;
  try {
    format.constraint(use);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    return error.what();
  }
  return "";
}

TEST(ToolConstraint, WhatCantBeEnforcedIsRefusedWithTheToolsName) {
  const char* const schemas[] = {
      R"({"type":"object","properties":{"a":{"type":"wat"}}})",
      R"({"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}})",
      R"({"type":"object","properties":{"a":{"$ref":"https://x.org/s"}}})",
      R"({"type":"object","properties":{"a":{"type":"string","pattern":"^a\\!($"}}})",
      R"({"type":"object","properties":{"a":{"not":{"type":"string"}}}})",
      R"({"type":"object","properties":[]})",
      R"({"type":"array"})",
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":5,"maximum":4}},"required":["a"]})",
  };
  for (const ToolFormat* format : tool_formats()) {
    for (const char* schema : schemas) {
      OrderedJson tools = tools_of(R"([{"type":"function","function":
          {"name":"good"}},{"type":"function","function":{"name":"bad_one"}}])");
      tools[1]["function"]["parameters"] = tools_of(schema);
      std::string error = error_of(*format, tools);
      EXPECT_NE(error.find("bad_one"), error.npos)
          << format->name() << " " << schema << " " << error;
    }
  }
}

TEST(ToolConstraint, OddListsAreRefused) {
  const ToolFormat& format = tool_format_named("json_tags");
  for (const char* tools :
       {R"([1])",
        R"([{"type":"function"}])",
        R"([{"function":{"name":""}}])",
        R"([{"function":{"name":"a b"}}])",
        R"([{"function":{"name":"a"}},{"function":{"name":"a"}}])",
        R"([{"function":{"name":"a","parameters":[]}}])",
        R"([])"}) {
    EXPECT_NE(error_of(format, tools_of(tools)), "") << tools;
  }
  OrderedJson tools = corpus_tools();
  ToolUse use;
  use.tools = &tools;
  use.choice = ToolChoice::named;
  use.named = "nobody";
  EXPECT_THROW(format.constraint(use), Error);
}

// Schemas that have broken grammar compilers.
TEST(ToolConstraint, SchemasThatAreSupported) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"object","properties":{"l":{"type":"array","items":
           {"$ref":"#/$defs/t"}}},"$defs":{"t":{"enum":["é\"x"]}}})",
       R"({"l": ["é\"x"]})"},
      {R"({"type":"object","properties":{"t":{"$ref":"#/$defs/t"}},"$defs":
           {"t":{"type":"object","properties":{"k":{"type":"array","items":
           {"$ref":"#/$defs/t"}}},"additionalProperties":false}}})",
       R"({"t": {"k": [{"k": []}, {}]}})"},
      {R"({"type":"object","properties":{"s":{"type":"string",
           "maxLength":5000}}})",
       R"({"s": "abc"})"},
      {R"({"type":"object","properties":{"c":{"const":null}}})",
       R"({"c": null})"},
      {R"({"type":"object","properties":{"s":{"type":"string",
           "pattern":"b+"}}})",
       R"({"s": "abba"})"},
      {R"({"type":"object","properties":{}})", R"({})"},
      {R"({})", R"({})"},
      {R"({"type":"object","properties":{"o":{"oneOf":[{"type":"integer"},
           {"type":"boolean"}]}}})",
       R"({"o": 5})"},
  };
  for (auto [schema, arguments] : cases) {
    OrderedJson tools = tools_of(R"([{"function":{"name":"f"}}])");
    tools[0]["function"]["parameters"] = tools_of(schema);
    ToolUse use;
    use.tools = &tools;
    use.choice = ToolChoice::required;
    for (const ToolFormat* format : tool_formats()) {
      try {
        EXPECT_TRUE(format->constraint(use));
      } catch (const Error& error) {
        ADD_FAILURE() << format->name() << " " << schema << error.what();
      }
    }
    const ToolFormat& format = tool_format_named("json_tags");
    Grammar grammar(format, false);
    std::string call = fmt::format(
        "<tool_call>\n{{\"name\": \"f\", \"arguments\": {}}}\n</tool_call>",
        arguments);
    EXPECT_TRUE(grammar.accepts(*format.constraint(use), call)) << call;
    std::string raw = call;
    if (size_t at = raw.find("abc"); at != raw.npos) {
      raw.insert(at, "\n");  // a raw control character
      EXPECT_FALSE(grammar.accepts(*format.constraint(use), raw));
    }
  }
}

// As a model goes on behind its reasoning.
TEST(ToolConstraint, AnEmptyLineMayComeBeforeADemandedCall) {
  const ToolFormat& format = tool_format_named("json_tags");
  Grammar grammar(format, false);
  ToolUse use;
  use.tools = &strict_tools();
  use.choice = ToolChoice::required;
  std::string lark = *format.constraint(use);
  std::string call =
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  for (const char* gap : {"", "\n", "\n\n"}) {
    EXPECT_TRUE(grammar.accepts(lark, gap + call));
    EXPECT_EQ(read_back(format, gap + call).content, "");
  }
  EXPECT_FALSE(grammar.accepts(lark, "\n\n\n" + call));
  EXPECT_FALSE(grammar.accepts(lark, "x" + call));
}

TEST(ToolConstraint, DescriptionsNeverReachTheGrammar) {
  for (const ToolFormat* format : tool_formats()) {
    std::string first;
    for (const std::string& words :
         {std::string("plain"),
          std::string("\"::= \\ \n /x/ {{ %json ~ | <tool_call> 😀"),
          std::string(300, '('),
          std::string(10000, 'x')}) {
      OrderedJson tools = tools_of(R"([{"function":{"name":"f","parameters":
          {"type":"object","properties":{"description":{"type":"string"},
          "o":{"type":"object","properties":{"title":{"type":"integer"}},
          "required":["title"]}},"required":["description"]}}}])");
      tools[0]["function"]["description"] = words;
      OrderedJson& parameters = tools[0]["function"]["parameters"];
      parameters["title"] = words;
      parameters["properties"]["description"]["description"] = words;
      parameters["properties"]["o"]["description"] = words;
      parameters["properties"]["o"]["properties"]["title"]["title"] = words;
      ToolUse use;
      use.tools = &tools;
      use.choice = ToolChoice::required;
      std::string grammar = *format->constraint(use);
      first = first.empty() ? grammar : first;
      EXPECT_EQ(grammar, first) << format->name();
      EXPECT_NE(grammar.find("title"), grammar.npos) << format->name();
      EXPECT_NE(grammar.find("description"), grammar.npos);
    }
  }
}

TEST(ToolConstraint, ManyOptionalProperties) {
  OrderedJson tools = tools_of(R"([{"function":{"name":"f","parameters":
      {"type":"object","properties":{}}}}])");
  OrderedJson& properties = tools[0]["function"]["parameters"]["properties"];
  for (int i = 0; i < 300; ++i) {
    properties[fmt::format("p{}", i)] = {{"type", "integer"}};
  }
  ToolUse use;
  use.tools = &tools;
  use.choice = ToolChoice::required;
  for (const char* name : {"json_tags", "qwen3_coder", "gemma4", "pythonic"}) {
    EXPECT_TRUE(tool_format_named(name).constraint(use)) << name;
  }
}

}  // namespace
}  // namespace mlxx::text
