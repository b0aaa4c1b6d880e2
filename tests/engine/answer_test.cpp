#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/engine/scheduler_bench.h"

// What an answer's text is and where it ends, through the scheduler.
namespace mlxx::engine {
namespace {

using Tokens = std::vector<int32_t>;

Got answer_to(Bench& bench, Request request, int choice = 0) {
  uint64_t id = bench.submit(std::move(request));
  bench.run();
  return bench.of(id, choice);
}

TEST(Answer, EndsBeforeAStopStringThatIsSpreadOverTokens) {
  Bench bench;
  bench.runner->answer("a", "one ENough END two");
  Request request = make_request("a");
  request.stop = {"END", "never"};
  Got got = answer_to(bench, request);
  EXPECT_EQ(got.text, "one ENough ");
  EXPECT_EQ(got.reason(), FinishReason::stop);
  EXPECT_EQ(got.finish->stop_sequence, "END");
  EXPECT_EQ(got.finish->usage.completion_tokens, 14);
  // What could have become one comes at the end.
  bench.runner->answer("b", "so EN");
  request.prompt = bytes("b");
  got = answer_to(bench, request);
  EXPECT_EQ(got.text, "so EN");
  EXPECT_EQ(got.finish->stop_sequence, "");
  bench.runner->answer("c", "so END");
  request.prompt = bytes("c");
  request.max_tokens = 5;
  got = answer_to(bench, request);
  EXPECT_EQ(got.text, "so EN");
  EXPECT_EQ(got.reason(), FinishReason::length);
}

TEST(Answer, HoldsAnIncompleteCharacterBack) {
  Bench bench;
  bench.runner->answer("a", "x\xe2\x82\xac");
  Got got = answer_to(bench, make_request("a"));
  EXPECT_EQ(got.text, "x\xe2\x82\xac");
  EXPECT_EQ(got.events, 5);  // each token, and the end
  bench.runner->answer("b", "x\xe2\x82");
  EXPECT_EQ(answer_to(bench, make_request("b")).text, "x\xef\xbf\xbd");
}

TEST(Answer, ShowsControlTokensOnlyIfAskedTo) {
  Bench bench;
  bench.runner->answer("a", bytes("x") + Tokens{kMark, kBegin} + bytes("y"));
  Request request = make_request("a");
  EXPECT_EQ(answer_to(bench, request).text, "xy");
  request.visible_tokens = {"<end>", "<unknown>"};
  EXPECT_EQ(answer_to(bench, request).text, "x<end>y");
  request.stop = {"d>y"};
  Got got = answer_to(bench, request);
  EXPECT_EQ(got.text, "x<en");
  EXPECT_EQ(got.finish->stop_sequence, "d>y");
}

TEST(Answer, GoesOnPastTheEosIfAskedTo) {
  Bench bench;
  bench.runner->answer("a", bytes("x") + Tokens{kEos} + bytes("y"));
  Request request = make_request("a", 5);
  EXPECT_EQ(answer_to(bench, request).text, "x");
  request.ignore_eos = true;
  Got got = answer_to(bench, request);
  EXPECT_EQ(got.text, "xy");
  EXPECT_EQ(got.reason(), FinishReason::length);
  EXPECT_EQ(got.finish->usage.completion_tokens, 5);
  EXPECT_EQ(got.tokens.size(), 5u);
}

TEST(Answer, BringsLogProbabilitiesIfAskedFor) {
  Bench bench;
  Request request = make_request("ab");
  EXPECT_EQ(answer_to(bench, request).tokens[0].logprob, 0);
  request.top_logprobs = 2;
  request.echo_logprobs = true;
  Got got = answer_to(bench, request);
  ASSERT_EQ(got.tokens.size(), 2u);
  EXPECT_EQ(got.tokens[1].logprob, -0.5f);
  ASSERT_EQ(got.tokens[1].top.size(), 2u);
  EXPECT_EQ(got.tokens[1].top[1].token, 'c');
  ASSERT_EQ(got.prompt.size(), 2u);
  EXPECT_TRUE(std::isnan(got.prompt[0].logprob));
  EXPECT_EQ(got.prompt[1].logprob, -1);
  EXPECT_EQ(got.prompt[1].top.size(), 2u);
  // Nothing but the prompt's.
  request.max_tokens = 0;
  got = answer_to(bench, request);
  EXPECT_EQ(got.prompt.size(), 2u);
  EXPECT_TRUE(got.tokens.empty());
  EXPECT_EQ(got.reason(), FinishReason::length);
}

TEST(Answer, CountsTheTokensOfItsReasoning) {
  Bench bench;
  Request request = make_request("a");
  auto reasoning_of = [&](const std::string& answer, bool open) {
    bench.runner->answer("a", answer);
    request.reasoning = Reasoning{open, "<t>", "</t>", {}};
    return answer_to(bench, request).finish->usage.reasoning_tokens;
  };
  EXPECT_EQ(reasoning_of("abc</t>yes", true), 7);
  EXPECT_EQ(reasoning_of("abc", true), 4);  // it never ended
  EXPECT_EQ(reasoning_of("<t>abc</t>yes", false), 10);
  EXPECT_EQ(reasoning_of("\n <t>abc</t>yes", false), 12);
  EXPECT_EQ(reasoning_of("<tx>abc</t>yes", false), 0);
  EXPECT_EQ(reasoning_of("yes <t>abc</t>", false), 0);
  EXPECT_EQ(reasoning_of("", false), 0);
  // By control tokens that do not show.
  bench.runner->answer("a", Tokens{kBegin} + bytes("ab") + Tokens{kMark, 'c'});
  request.reasoning = Reasoning{false, "<s>", "<end>", {}};
  Got got = answer_to(bench, request);
  EXPECT_EQ(got.finish->usage.reasoning_tokens, 4);
  EXPECT_EQ(got.text, "abc");
}

TEST(Answer, EndsReasoningWhenItsBudgetIsSpent) {
  Bench bench;
  Request request = make_request("a", 12);
  bench.runner->answer("a", "0123456789yes");
  request.reasoning = Reasoning{true, "<t>", "</t>", 3};
  Got got = answer_to(bench, request);
  EXPECT_EQ(got.text, "012</t>789ye");
  EXPECT_EQ(got.finish->usage.reasoning_tokens, 7);
  request.reasoning->budget = 0;
  got = answer_to(bench, request);
  EXPECT_EQ(got.text, "</t>456789ye");
  request.reasoning->budget = 100;
  EXPECT_EQ(answer_to(bench, request).text, "0123456789ye");
  // One that ends within the budget is left alone, one that does not begin
  // too, and one that begins late has all of it.
  bench.runner->answer("a", "01</t>6789");
  request.reasoning->budget = 6;
  EXPECT_EQ(answer_to(bench, request).text, "01</t>6789");
  request.reasoning->open = false;
  request.reasoning->budget = 1;
  EXPECT_EQ(answer_to(bench, request).text, "01</t>6789");
  bench.runner->answer("a", " <t>abcdefghi");
  request.reasoning->budget = 2;
  EXPECT_EQ(answer_to(bench, request).text, " <t>ab</t>gh");
  // By a control token.
  bench.runner->answer("a", bytes("0123yes"));
  request.reasoning = Reasoning{true, "<s>", "<end>", 2};
  got = answer_to(bench, request);
  EXPECT_EQ(got.text, "013yes");
  EXPECT_EQ(got.ids()[2], kMark);
}

TEST(Answer, ABudgetNeedsAMarkThatEndsTheReasoning) {
  Bench bench;
  Request request = make_request("a");
  request.reasoning = Reasoning{true, "<t>", "", 5};
  Got got = answer_to(bench, request);
  EXPECT_EQ(got.finish->error->kind(), ErrorKind::invalid_request);
  EXPECT_TRUE(got.error().starts_with("[reasoning_budget]")) << got.error();
  // Nothing that could be reasoning needs no end.
  request.reasoning = Reasoning{false, "", "", 5};
  EXPECT_EQ(answer_to(bench, request).text, "a");
  EXPECT_EQ(bench.runner->open_rows, 0);
  EXPECT_EQ(bench.source.used, 0);
}

Constraint schema(const char* text) {
  return {text::GrammarKind::json_schema, text};
}

TEST(Answer, FollowsItsGrammarAndEndsWithIt) {
  Bench bench;
  bench.runner->answer("a", "never valid JSON, by itself");
  bench.runner->answer("b", "free");
  Request request = make_request("a", 50);
  request.constraint = schema(R"({"type":"object","properties":
      {"x":{"type":"boolean"}},"required":["x"],"additionalProperties":false})");
  uint64_t free = bench.submit(make_request("b"));
  Got got = answer_to(bench, request);
  Json json = parse_json(got.text, "answer");
  EXPECT_TRUE(json["x"].is_boolean()) << got.text;
  EXPECT_EQ(got.reason(), FinishReason::stop);
  EXPECT_EQ(bench.of(free).text, "free");
  // A prefix, if there is no room for more.
  request.max_tokens = 4;
  got = answer_to(bench, request);
  EXPECT_EQ(got.text, "{\"x\"");
  EXPECT_EQ(got.reason(), FinishReason::length);
  EXPECT_EQ(bench.scheduler->stats().failed, 0u);
}

TEST(Answer, EachChoiceAndRequestHasAGrammarOfItsOwn) {
  Bench bench;
  bench.runner->next = [](const FakeRow& row) {
    return static_cast<int32_t>('a' + row.settings.seed);
  };
  std::vector<uint64_t> ids;
  for (const char* regex : {"[a-c]{2}", "[b-d]{3}", "x[a-z]{4}"}) {
    Request request = make_request("p");
    request.n = 3;
    request.sampling.seed = 1;
    request.constraint = Constraint{text::GrammarKind::regex, regex};
    ids.push_back(bench.submit(std::move(request)));
  }
  bench.run();
  EXPECT_EQ(bench.of(ids[0], 0).text, "bb");
  EXPECT_EQ(bench.of(ids[0], 1).text, "cc");
  EXPECT_EQ(bench.of(ids[1], 1).text, "ccc");
  EXPECT_EQ(bench.of(ids[1], 2).text, "ddd");
  EXPECT_EQ(bench.of(ids[2], 2).text, "xdddd");
}

TEST(Answer, ABadGrammarFailsItsRequestOnly) {
  Bench bench;
  Request request = make_request("a");
  request.constraint = schema(R"({"type":"wat"})");
  uint64_t other = bench.submit(make_request("hello"));
  Got got = answer_to(bench, request);
  EXPECT_EQ(got.reason(), FinishReason::error);
  EXPECT_EQ(got.finish->error->kind(), ErrorKind::invalid_request);
  EXPECT_EQ(got.text, "");
  EXPECT_EQ(bench.of(other).text, "hello");
  bench.runner->editable_text()->eos_ids = {};
  request.constraint = schema("{}");
  EXPECT_TRUE(answer_to(bench, request).error().starts_with("[constraint]"));
  EXPECT_TRUE(bench.scheduler->stats().healthy);
}

TEST(Answer, TheGrammarHoldsFromTheEndOfTheReasoningOn) {
  Bench bench;
  Request request = make_request("a", 40);
  request.constraint = Constraint{text::GrammarKind::regex, "[0-9]{3}"};
  auto text_of = [&](const std::string& answer, bool open) {
    bench.runner->answer("a", answer);
    request.reasoning = Reasoning{open, "<t>", "</t>", {}};
    return answer_to(bench, request).text;
  };
  EXPECT_EQ(text_of("abc</t>123456", true), "abc</t>123");
  EXPECT_EQ(text_of("<t>abc</t>123456", false), "<t>abc</t>123");
  EXPECT_EQ(text_of("123456", false), "123");
  // Neither of the two: the grammar holds.
  EXPECT_EQ(text_of("wxyz", false), "000");
}

TEST(Answer, ReasoningMayNotEndTheAnswerBeforeItsGrammar) {
  Bench bench;
  // EOS in the middle of the reasoning: another token comes instead.
  bench.runner->answer("a", "ab");
  Request request = make_request("a", 20);
  request.constraint = Constraint{text::GrammarKind::regex, "[0-9]"};
  request.reasoning = Reasoning{true, "<t>", "</t>", 5};
  Got got = answer_to(bench, request);
  EXPECT_EQ(got.reason(), FinishReason::stop);
  EXPECT_TRUE(got.text.ends_with("</t>0")) << got.text;
  EXPECT_EQ(got.finish->usage.reasoning_tokens, 9);
  EXPECT_EQ(got.finish->usage.completion_tokens, 10);
}

}  // namespace
}  // namespace mlxx::engine
