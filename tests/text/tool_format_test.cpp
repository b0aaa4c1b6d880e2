#include "mlxx/text/tool_format.h"

#include <set>

#include "mlxx/base/error.h"
#include "tests/text/tool_call_corpus.h"

namespace mlxx::text {
namespace {

void expect_answer(const ToolCallCase& one, const ParsedAnswer& answer) {
  EXPECT_EQ(answer.reasoning, one.expected.value("reasoning", ""));
  EXPECT_EQ(answer.content, one.expected.value("content", ""));
  OrderedJson calls = one.expected.value("calls", OrderedJson::array());
  ASSERT_EQ(answer.calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(answer.calls[i].first, calls[i]["name"]);
    const OrderedJson& arguments = calls[i]["arguments"];
    if (arguments.is_string()) {
      EXPECT_EQ(answer.calls[i].second, arguments);
    } else {
      EXPECT_EQ(
          parse_ordered_json(answer.calls[i].second, "arguments"),
          arguments)
          << answer.calls[i].second;
    }
  }
}

TEST(ToolFormat, EveryCaseInOnePiece) {
  std::set<std::string> formats;
  for (const ToolCallCase& one : tool_call_cases()) {
    SCOPED_TRACE(one.format + "/" + one.name);
    formats.insert(one.format);
    expect_answer(one, parsed(one, one.input, {}));
  }
  for (const ToolFormat* format : tool_formats()) {
    EXPECT_TRUE(formats.contains(std::string(format->name())))
        << format->name() << " has no cases";
  }
}

TEST(ToolFormat, CutsChangeNothing) {
  std::mt19937 random(7);
  for (const ToolCallCase& one : tool_call_cases()) {
    SCOPED_TRACE(one.format + "/" + one.name);
    ParsedAnswer whole = parsed(one, one.input, {});
    size_t size = one.input.size();
    EXPECT_EQ(parsed(one, one.input, every_byte(size)), whole);
    for (size_t cut = 1; cut < size; ++cut) {
      EXPECT_EQ(parsed(one, one.input, {cut}), whole) << "at " << cut;
    }
    for (int round = 0; round < 10; ++round) {
      EXPECT_EQ(parsed(one, one.input, some_cuts(size, random)), whole);
    }
  }
}

// However an answer is damaged: no crash, and no dependence on cuts either.
TEST(ToolFormat, DamagedAnswersAreReadTheSameInAnyPieces) {
  std::mt19937 random(11);
  auto cases = tool_call_cases();
  std::string letters = "<>{}[]()\"'\\:=,/|\n abc\x80\xff";
  for (const ToolCallCase& one : cases) {
    SCOPED_TRACE(one.format + "/" + one.name);
    for (int round = 0; round < 40; ++round) {
      std::string input = one.input;
      for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
        size_t at = input.empty() ? 0 : random() % input.size();
        switch (random() % 5) {
          case 0:
            input.erase(at, random() % 6);
            break;
          case 1:
            input.insert(at, 1, letters[random() % letters.size()]);
            break;
          case 2:
            input.resize(at);
            break;
          case 3: {
            std::string part = input.substr(at, random() % 30);
            input.insert(input.empty() ? 0 : random() % input.size(), part);
            break;
          }
          default:
            input += cases[random() % cases.size()].input;
        }
      }
      ParsedAnswer whole = parsed(one, input, {});
      EXPECT_EQ(parsed(one, input, every_byte(input.size())), whole) << input;
      EXPECT_EQ(parsed(one, input, some_cuts(input.size(), random)), whole)
          << input;
      EXPECT_LE(whole.content.size(), input.size() + 16);
    }
  }
}

TEST(ToolFormat, OnlyWhatMayBecomeMarkupIsHeldBack) {
  ToolCallCase one;
  one.format = "json_tags";
  auto parser = parser_of(one);
  EXPECT_EQ(parser->step("Let me ").content, "Let me");
  EXPECT_EQ(parser->step("see <too").content, " see");
  EXPECT_EQ(parser->step("lbox> x").content, " <toolbox> x");
  EXPECT_EQ(parser->step("<tool_call>\n{\"na").content, "");
  AnswerPiece piece = parser->step("me\": \"now\", \"arguments\": {\"a\": \"b");
  ASSERT_EQ(piece.calls.size(), 2u);
  EXPECT_EQ(piece.calls[0].name, "now");
  EXPECT_EQ(piece.calls[1].arguments, "{\"a\": \"b");
  EXPECT_EQ(parser->step(" c").calls.at(0).arguments, " c");
}

TEST(ToolFormat, WithoutToolsNothingIsHeldBack) {
  for (const ToolFormat* format : tool_formats()) {
    if (format->name() == "harmony") {
      continue;
    }
    auto parser = format->make_parser(std::nullopt, false, OrderedJson());
    EXPECT_EQ(parser->step("a ").content, "a ") << format->name();
    EXPECT_EQ(parser->step("<tool_call>{").content, "<tool_call>{");
  }
}

TEST(ToolFormat, IsKnownByTheTemplate) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "json_tags"},
      {"{{ '<tool_call>' }}", "json_tags"},
      {"<tool_call>\n<function=example>", "qwen3_coder"},
      {"<tool_call>name<arg_key>k</arg_key>", "glm47"},
      {"<longcat_tool_call><longcat_arg_key>", "longcat"},
      {"<minimax:tool_call>", "minimax_m2"},
      {"<|tool_call>call:<tool_call|>", "gemma4"},
      {"<start_function_call>", "function_gemma"},
      {"<|tool_list_start|>", "pythonic"},
      {"<|tool_calls_section_begin|>", "kimi_k2"},
      {"[TOOL_CALLS]", "mistral"},
      {"<|python_tag|>", "llama3_json"},
      {"<|channel|>analysis<|message|>", "harmony"},
      {"<function name=\"f\">", "minicpm5"},
      {"<atem:function_calls>", "muse"},
      {"<|START_ACTION|>", "cohere"},
      {"<|tool_call|>", "granite"},
      {"<tool_calls>[", "json_list_tags"},
      {"<TOOLCALL>[", "nemotron"},
      {"{% set d = '｜DSML｜' %}tool_calls>", "deepseek_v4"},
      {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "deepseek_v3"},
      {"{% set d = '｜DSML｜' %}function_calls", "deepseek_v32"},
      {"<seed:tool_call><function=", "seed_oss"},
  };
  for (auto [source, name] : cases) {
    EXPECT_EQ(find_tool_format(source).name(), name) << source;
  }
  EXPECT_EQ(&tool_format_named("glm47"), &find_tool_format("<arg_key>"));
  try {
    tool_format_named("nothing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
    EXPECT_NE(std::string(error.what()).find("kimi_k2"), std::string::npos);
  }
}

TEST(ToolFormat, ReasoningIsKnownByTheTemplate) {
  EXPECT_FALSE(find_reasoning_format("{{ messages }}"));
  EXPECT_EQ(find_reasoning_format("<think>")->end, "</think>");
  EXPECT_EQ(find_reasoning_format("x.split('</think>')")->begin, "<think>");
  EXPECT_EQ(find_reasoning_format("[THINK]")->end, "[/THINK]");
  EXPECT_EQ(find_reasoning_format("<seed:think>")->end, "</seed:think>");
  EXPECT_EQ(
      find_reasoning_format("<|START_THINKING|>")->end,
      "<|END_THINKING|>");
  EXPECT_EQ(find_reasoning_format("<|channel>thought\n")->end, "<channel|>");
  EXPECT_EQ(find_reasoning_format("<|channel|><|message|>")->name, "harmony");
}

TEST(ToolFormat, ControlTokensOfReasoningAreVisibleToo) {
  auto tokens = markup_tokens(
      tool_format_named("mistral"),
      find_reasoning_format("[THINK]"));
  std::set<std::string> set(tokens.begin(), tokens.end());
  EXPECT_TRUE(set.contains("[TOOL_CALLS]"));
  EXPECT_TRUE(set.contains("[/THINK]"));
}

// Where markers are control tokens, reasoning may come at any place.
TEST(ToolFormat, ReasoningInTheMiddle) {
  auto parser = tool_format_named("gemma4").make_parser(
      find_reasoning_format("<|channel>thought"),
      false,
      corpus_tools());
  ParsedAnswer answer;
  answer.take(parser->step(
      "a<|channel>thought\nb\n<channel|>c<|tool_call>call:now{}<tool_call|>"
      "<|channel>thought\nd"));
  answer.take(parser->flush());
  EXPECT_EQ(answer.content, "a\nc");
  EXPECT_EQ(answer.reasoning, "bd");
  EXPECT_EQ(answer.calls.size(), 1u);
}

}  // namespace
}  // namespace mlxx::text
