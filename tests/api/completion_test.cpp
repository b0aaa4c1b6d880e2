#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/api/errors.h"
#include "tests/api/tiny_model.h"

namespace mlxx::api {

namespace {

OrderedJson parse(std::string_view text) {
  return OrderedJson::parse(text);
}

std::string refusal_of(std::string_view body) {
  try {
    answer_completion(parse(body), tiny_context());
    return "accepted";
  } catch (const std::exception& error) {
    const ErrorReply reply = describe_error(error);
    return fmt::format("{} {}", reply.status, reply.param);
  }
}

TEST(CompletionRequest, PromptsOfAllFourKinds) {
  const Context context = tiny_context();
  auto prompts = [&](std::string_view prompt) {
    std::vector<std::vector<int32_t>> out;
    OrderedJson body = {{"prompt", parse(prompt)}};
    for (auto& request : answer_completion(body, context)->take_requests()) {
      out.push_back(request.prompt);
    }
    return out;
  };
  using Ids = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(prompts("\"ab\""), (Ids{{'a', 'b'}}));
  EXPECT_EQ(prompts(R"(["a", "bc"])"), (Ids{{'a'}, {'b', 'c'}}));
  EXPECT_EQ(prompts("[5, 6.0]"), (Ids{{5, 6}}));
  EXPECT_EQ(prompts("[[5], [6, 7]]"), (Ids{{5}, {6, 7}}));
}

TEST(CompletionRequest, WrongPromptsAreNamed) {
  EXPECT_EQ(refusal_of("{}"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": null})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": 5})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": ""})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": []})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": [""]})"), "400 prompt[0]");
  EXPECT_EQ(refusal_of(R"({"prompt": [[]]})"), "400 prompt[0]");
  EXPECT_EQ(refusal_of(R"({"prompt": ["a", 5]})"), "400 prompt[1]");
  EXPECT_EQ(refusal_of(R"({"prompt": [5, "a"]})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": [[5], "a"]})"), "400 prompt[1]");
  EXPECT_EQ(refusal_of(R"({"prompt": [-1]})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": [999999]})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": [1.5]})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"prompt": [{}]})"), "400 prompt");
  OrderedJson many = {{"prompt", std::vector<std::string>(129, "x")}};
  EXPECT_EQ(refusal_of(many.dump()), "400 prompt");
  OrderedJson long_one = {{"prompt", std::string(5000, 'x')}};
  EXPECT_EQ(refusal_of(long_one.dump()), "400 prompt");
}

TEST(CompletionRequest, BestOfIsTakenWhereItChangesNothing) {
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "n": 3, "best_of": 3})"), "accepted");
  EXPECT_EQ(
      refusal_of(R"({"prompt": "a", "n": 1, "best_of": 3})"),
      "400 best_of");
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "suffix": "b"})"), "400 suffix");
  EXPECT_EQ(
      refusal_of(R"({"prompt": "a", "max_tokens": 0})"),
      "400 max_tokens");
  EXPECT_EQ(
      refusal_of(R"({"prompt": "a", "max_tokens": 0, "echo": true})"),
      "accepted");
}

TEST(CompletionRequest, LogprobsAreANumber) {
  const Context context = tiny_context();
  auto request_of = [&](std::string_view body) {
    return answer_completion(parse(body), context)->take_requests().at(0);
  };
  EXPECT_EQ(request_of(R"({"prompt": "a", "logprobs": 5})").top_logprobs, 5);
  EXPECT_EQ(request_of(R"({"prompt": "a", "logprobs": 0})").top_logprobs, 0);
  EXPECT_FALSE(request_of(R"({"prompt": "a"})").top_logprobs);
  EXPECT_FALSE(request_of(R"({"prompt": "a", "logprobs": 0})").echo_logprobs);
  EXPECT_TRUE(request_of(R"({"prompt": "a", "logprobs": 0, "echo": true})")
                  .echo_logprobs);
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "logprobs": true})"), "400 logprobs");
  EXPECT_EQ(refusal_of(R"({"prompt": "a", "logprobs": 21})"), "400 logprobs");
}

// Two prompts of two choices each, told in an odd order.
std::string told(Answer& answer) {
  std::string out = answer.begin();
  for (size_t index : {1, 0}) {
    for (int choice : {1, 0}) {
      const std::string text = fmt::format("p{}c{}", index, choice);
      for (const auto& event : events_of(
               {text.substr(0, 1), text.substr(1)},
               choice == 0 ? engine::FinishReason::stop
                           : engine::FinishReason::length,
               choice)) {
        out += answer.take(index, event);
      }
    }
  }
  return out + answer.end();
}

TEST(CompletionAnswer, ChoicesAreCountedOverPrompts) {
  const OrderedJson body = parse(R"({"prompt": ["a", "b"], "n": 2})");
  auto answer = answer_completion(body, tiny_context());
  EXPECT_EQ(told(*answer), "");
  const OrderedJson out = parse(answer->body());
  EXPECT_EQ(out["object"], "text_completion");
  ASSERT_EQ(out["choices"].size(), 4u);
  const std::vector<std::string> texts = {"p0c0", "p0c1", "p1c0", "p1c1"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out["choices"][i]["index"], i);
    EXPECT_EQ(out["choices"][i]["text"], texts[i]);
    EXPECT_EQ(
        out["choices"][i]["finish_reason"],
        i % 2 == 0 ? "stop" : "length");
    EXPECT_TRUE(out["choices"][i]["logprobs"].is_null());
  }
  EXPECT_EQ(out["usage"]["prompt_tokens"], 20);
  EXPECT_EQ(out["usage"]["completion_tokens"], 16);
}

TEST(CompletionAnswer, StreamsSayTheSame) {
  const OrderedJson body = parse(
      R"({"prompt": ["a", "b"], "n": 2, "stream": true, "echo": true,
      "logprobs": 0, "stream_options": {"include_usage": true}})");
  auto answer = answer_completion(body, tiny_context());
  std::vector<std::string> frames = frames_of(told(*answer));
  ASSERT_EQ(frames.back(), "[DONE]");
  frames.pop_back();
  const OrderedJson last = parse(frames.back());
  EXPECT_EQ(last["choices"], OrderedJson::array());
  EXPECT_EQ(last["usage"]["total_tokens"], 36);
  frames.pop_back();
  std::vector<std::string> texts(4);
  std::vector<std::string> tokens(4);
  std::vector<size_t> offsets;
  for (const std::string& frame : frames) {
    const OrderedJson chunk = parse(frame);
    EXPECT_EQ(chunk["id"], last["id"]);
    const OrderedJson& choice = chunk["choices"][0];
    const size_t index = choice["index"];
    texts.at(index) += choice["text"];
    if (!choice["logprobs"].is_null()) {
      for (size_t i = 0; i < choice["logprobs"]["tokens"].size(); ++i) {
        tokens[index] += choice["logprobs"]["tokens"][i];
        if (index == 0) {
          offsets.push_back(choice["logprobs"]["text_offset"][i]);
        }
      }
    }
  }
  EXPECT_EQ(
      texts,
      (std::vector<std::string>{"ap0c0", "ap0c1", "bp1c0", "bp1c1"}));
  EXPECT_EQ(tokens, (std::vector<std::string>{"p0c0", "p0c1", "p1c0", "p1c1"}));
  EXPECT_EQ(offsets, (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(CompletionAnswer, LegacyLogprobsOfPromptAndAnswer) {
  const OrderedJson body =
      parse(R"({"prompt": "\u00e9a", "echo": true, "logprobs": 2})");
  auto answer = answer_completion(body, tiny_context());
  engine::Event event;
  event.prompt.push_back({0xc3, NAN, {}});
  event.prompt.push_back({0xa9, -1.0f, {{0xa9, -1.0f}, {0xaa, -2.0f}}});
  event.prompt.push_back({'a', -3.0f, {{'b', -0.5f}, {'a', -3.0f}}});
  event.text = "c";
  event.tokens.push_back({'c', -0.125f, {{'c', -0.125f}}});
  answer->take(0, event);
  answer->take(0, events_of({})[0]);
  const OrderedJson choice = parse(answer->body())["choices"][0];
  EXPECT_EQ(choice["text"], "\u00e9ac");
  const OrderedJson& logprobs = choice["logprobs"];
  EXPECT_EQ(
      logprobs["tokens"],
      OrderedJson::array({"bytes:\\xc3", "bytes:\\xa9", "a", "c"}));
  EXPECT_EQ(
      logprobs["token_logprobs"],
      OrderedJson::array({nullptr, -1.0, -3.0, -0.125}));
  EXPECT_EQ(logprobs["text_offset"], OrderedJson::array({0, 1, 1, 2}));
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["top_logprobs"][1]["bytes:\\xaa"], -2.0);
  EXPECT_EQ(logprobs["top_logprobs"][2]["b"], -0.5);
}

TEST(CompletionAnswer, EchoOfNothingMore) {
  const OrderedJson body = parse(
      R"({"prompt": [104, 105], "echo": true, "max_tokens": 0,
      "logprobs": 0})");
  auto answer = answer_completion(body, tiny_context());
  EXPECT_EQ(answer->take_requests().at(0).max_tokens, 0);
  engine::Event event;
  event.prompt.push_back({'h', NAN, {}});
  event.prompt.push_back({'i', -1.0f, {}});
  event.finish.emplace();
  event.finish->reason = engine::FinishReason::length;
  answer->take(0, event);
  const OrderedJson choice = parse(answer->body())["choices"][0];
  EXPECT_EQ(choice["text"], "hi");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["tokens"], OrderedJson::array({"h", "i"}));
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"].is_null());
}

}  // namespace

}  // namespace mlxx::api
