#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/api/tiny_model.h"

namespace mlxx::api {

namespace {

struct Case {
  OrderedJson json;

  std::string about() const {
    return json["about"];
  }
  int n() const {
    return json.contains("more") ? json["more"].value("n", 1) : 1;
  }

  std::unique_ptr<Answer> answer(bool stream) const {
    OrderedJson body = {
        {"messages", {{{"role", "user"}, {"content", "hi"}}}},
        {"stream", stream}};
    if (json.value("tools", false)) {
      body["tools"] = OrderedJson::parse(
          R"([{"type": "function", "function": {"name": "f", "parameters":
          {"type": "object", "properties": {"x": {"type": "integer"}}}}}])");
    }
    if (json.contains("more")) {
      body.update(json["more"]);
    }
    const bool thinking = json.value("template", "") == "thinking";
    return answer_chat(
        body,
        tiny_context(tiny_model(thinking ? kThinkingTemplate : kTinyTemplate)));
  }

  // The events of all choices, each with the text in these pieces.
  std::vector<engine::Event> events(
      const std::vector<std::string>& pieces) const {
    std::vector<engine::Event> out;
    const bool cut = json.value("finish", "stop") == "length";
    for (int choice = 0; choice < n(); ++choice) {
      for (auto& event : events_of(
               pieces,
               cut ? engine::FinishReason::length : engine::FinishReason::stop,
               choice)) {
        out.push_back(std::move(event));
      }
    }
    return out;
  }
};

std::vector<Case> cases() {
  std::ifstream file(MLXX_TEST_DATA "/api/chat_answers.json");
  std::stringstream text;
  text << file.rdbuf();
  std::vector<Case> out;
  for (const OrderedJson& json : OrderedJson::parse(text.str())) {
    out.push_back({json});
  }
  return out;
}

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> out;
  for (char byte : text) {
    if ((static_cast<uint8_t>(byte) & 0xc0) != 0x80) {
      out.emplace_back();
    }
    out.back() += byte;
  }
  return out;
}

// Choices as in an answer that does not stream, ids of calls left out.
OrderedJson without_call_ids(OrderedJson choices) {
  for (OrderedJson& choice : choices) {
    if (choice["message"].contains("tool_calls")) {
      for (OrderedJson& call : choice["message"]["tool_calls"]) {
        EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
        call.erase("id");
      }
    }
  }
  return choices;
}

void add_text(OrderedJson& to, const OrderedJson& from, const char* name) {
  if (from.contains(name) && from[name].is_string()) {
    to[name] =
        (to.contains(name) && to[name].is_string() ? to[name].get<std::string>()
                                                   : std::string()) +
        from[name].get<std::string>();
  }
}

void add_calls(OrderedJson& message, const OrderedJson& delta) {
  for (const OrderedJson& piece : delta["tool_calls"]) {
    if (!message.contains("tool_calls")) {
      message["tool_calls"] = OrderedJson::array();
    }
    OrderedJson& calls = message["tool_calls"];
    const size_t index = piece["index"];
    if (index == calls.size()) {
      EXPECT_TRUE(piece.contains("id"));
      EXPECT_EQ(piece["type"], "function");
      calls.push_back(
          {{"id", piece["id"]},
           {"type", "function"},
           {"function",
            {{"name", piece["function"]["name"]}, {"arguments", ""}}}});
    } else {
      EXPECT_LT(index, calls.size());
      EXPECT_FALSE(piece.contains("id"));
      EXPECT_FALSE(piece.contains("type"));
      EXPECT_FALSE(piece["function"].contains("name"));
    }
    add_text(calls[index]["function"], piece["function"], "arguments");
  }
}

// Puts a stream together as clients do, and checks what every stream keeps to.
OrderedJson assembled(const std::string& stream, int n) {
  OrderedJson choices = OrderedJson::array();
  std::vector<std::string> frames = frames_of(stream);
  EXPECT_EQ(frames.back(), "[DONE]");
  frames.pop_back();
  std::string id;
  for (int i = 0; i < n; ++i) {
    choices.push_back(
        {{"index", i},
         {"message", OrderedJson::object()},
         {"logprobs", nullptr},
         {"finish_reason", nullptr}});
  }
  for (const std::string& frame : frames) {
    const OrderedJson chunk = OrderedJson::parse(frame);
    id = id.empty() ? chunk["id"].get<std::string>() : id;
    EXPECT_EQ(chunk["id"], id);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["created"], 1700000001);
    EXPECT_EQ(chunk["model"], "tiny");
    EXPECT_FALSE(chunk.contains("usage"));
    EXPECT_EQ(chunk["choices"].size(), 1u);
    const OrderedJson& part = chunk["choices"][0];
    OrderedJson& choice = choices.at(part["index"].get<size_t>());
    OrderedJson& message = choice["message"];
    EXPECT_TRUE(choice["finish_reason"].is_null()) << "a delta after the end";
    EXPECT_EQ(message.empty(), part["delta"].contains("role"))
        << "the first delta, and no other, has the role";
    for (const char* name : {"role", "content", "reasoning_content"}) {
      add_text(message, part["delta"], name);
    }
    message["refusal"] = nullptr;
    if (part["delta"].contains("tool_calls")) {
      add_calls(message, part["delta"]);
    }
    if (!part["logprobs"].is_null()) {
      if (choice["logprobs"].is_null()) {
        choice["logprobs"] = {
            {"content", OrderedJson::array()},
            {"refusal", nullptr}};
      }
      for (const OrderedJson& one : part["logprobs"]["content"]) {
        choice["logprobs"]["content"].push_back(one);
      }
    }
    choice["finish_reason"] = part["finish_reason"];
  }
  for (OrderedJson& choice : choices) {
    OrderedJson& message = choice["message"];
    if (message.contains("tool_calls") && message["content"] == "") {
      message["content"] = nullptr;  // a stream cannot say null
    }
  }
  return choices;
}

OrderedJson body_of(const Case& test, const std::vector<std::string>& pieces) {
  auto answer = test.answer(false);
  EXPECT_EQ(answer->begin(), "");
  for (const engine::Event& event : test.events(pieces)) {
    EXPECT_EQ(answer->take(0, event), "");
  }
  EXPECT_EQ(answer->end(), "");
  return OrderedJson::parse(answer->body());
}

TEST(ChatAnswer, SaysWhatTheModelMeant) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.about());
    const OrderedJson body = body_of(test, {test.json["text"]});
    EXPECT_EQ(body["object"], "chat.completion");
    EXPECT_EQ(body["model"], "tiny");
    EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
    ASSERT_EQ(body["choices"].size(), static_cast<size_t>(test.n()));
    for (const OrderedJson& choice : body["choices"]) {
      EXPECT_EQ(choice["finish_reason"], test.json["finish_reason"]);
      const OrderedJson& message = choice["message"];
      const OrderedJson& wanted = test.json["message"];
      EXPECT_EQ(message["role"], "assistant");
      EXPECT_EQ(message["content"], wanted["content"]);
      EXPECT_EQ(
          message.value("reasoning_content", ""),
          wanted.value("reasoning_content", ""));
      const OrderedJson none = OrderedJson::array();
      const OrderedJson calls = message.value("tool_calls", none);
      const OrderedJson wanted_calls = wanted.value("tool_calls", none);
      ASSERT_EQ(calls.size(), wanted_calls.size());
      for (size_t i = 0; i < calls.size(); ++i) {
        const OrderedJson& function = calls[i]["function"];
        EXPECT_EQ(function["name"], wanted_calls[i]["name"]);
        if (wanted_calls[i].contains("arguments_text")) {
          EXPECT_EQ(function["arguments"], wanted_calls[i]["arguments_text"]);
        } else {
          EXPECT_EQ(
              OrderedJson::parse(function["arguments"].get<std::string>()),
              wanted_calls[i]["arguments"]);
        }
      }
    }
  }
}

TEST(ChatAnswer, StreamsSayTheSameHoweverTheTextIsCut) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.about());
    const std::string text = test.json["text"];
    const OrderedJson whole =
        without_call_ids(body_of(test, {text})["choices"]);
    const std::vector<std::string> letters = characters(text);
    std::vector<std::vector<std::string>> cuts = {{text}, letters};
    for (size_t i = 1; i < letters.size(); ++i) {
      std::vector<std::string> two(2);
      for (size_t j = 0; j < letters.size(); ++j) {
        two[j < i ? 0 : 1] += letters[j];
      }
      cuts.push_back(two);
    }
    for (const auto& pieces : cuts) {
      auto answer = test.answer(true);
      ASSERT_TRUE(answer->streams());
      const std::string stream = stream_of(*answer, test.events(pieces));
      ASSERT_EQ(without_call_ids(assembled(stream, test.n())), whole);
    }
  }
}

TEST(ChatAnswer, CallsHaveIdsOfTheirOwn) {
  for (const Case& test : cases()) {
    std::set<std::string> ids;
    const OrderedJson body = body_of(test, {test.json["text"]});
    for (const OrderedJson& choice : body["choices"]) {
      for (const OrderedJson& call :
           choice["message"].value("tool_calls", OrderedJson::array())) {
        EXPECT_TRUE(ids.insert(call["id"]).second) << test.about();
      }
    }
  }
}

TEST(ChatAnswer, UsageCountsThePromptOnce) {
  OrderedJson body = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "hi"}], "n": 2})");
  auto answer = answer_chat(body, tiny_context());
  EXPECT_EQ(answer->take_requests().at(0).n, 2);
  for (int choice : {1, 0}) {
    for (auto& event : events_of({"abc"}, engine::FinishReason::stop, choice)) {
      if (event.finish) {
        event.finish->usage.reasoning_tokens = 2;
      }
      answer->take(0, event);
    }
  }
  const OrderedJson usage = OrderedJson::parse(answer->body())["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 10);
  EXPECT_EQ(usage["completion_tokens"], 6);
  EXPECT_EQ(usage["total_tokens"], 16);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 4);
}

TEST(ChatAnswer, UsageChunkOnlyWhenAskedFor) {
  OrderedJson body = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "hi"}], "stream": true,
      "stream_options": {"include_usage": true}})");
  auto answer = answer_chat(body, tiny_context());
  auto frames = frames_of(stream_of(*answer, events_of({"a", "b"})));
  ASSERT_EQ(frames.back(), "[DONE]");
  frames.pop_back();
  const OrderedJson last = OrderedJson::parse(frames.back());
  EXPECT_EQ(last["choices"], OrderedJson::array());
  EXPECT_EQ(last["usage"]["completion_tokens"], 2);
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    const OrderedJson chunk = OrderedJson::parse(frames[i]);
    EXPECT_EQ(chunk["id"], last["id"]);
    EXPECT_TRUE(chunk.contains("usage") && chunk["usage"].is_null());
  }
}

TEST(ChatAnswer, LogprobsHaveExactBytes) {
  OrderedJson body = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "hi"}], "logprobs": true,
      "top_logprobs": 2})");
  auto answer = answer_chat(body, tiny_context());
  engine::Event event;
  event.text = "\u00e9";
  event.tokens.push_back({0xc3, -0.25f, {{0xc3, -0.25f}, {'a', -2.0f}}});
  event.tokens.push_back({0xa9, -INFINITY, {{0xa9, -INFINITY}, {0xf0, NAN}}});
  answer->take(0, event);
  answer->take(0, events_of({})[0]);
  const OrderedJson content =
      OrderedJson::parse(answer->body())["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["bytes"], OrderedJson::array({0xc3}));
  EXPECT_EQ(content[0]["token"], "\ufffd");
  EXPECT_EQ(content[0]["logprob"], -0.25);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "a");
  EXPECT_EQ(content[1]["logprob"], -9999.0);
  EXPECT_EQ(content[1]["top_logprobs"][1]["logprob"], -9999.0);
}

TEST(ChatAnswer, FailuresEndWithAnErrorAndNoDone) {
  OrderedJson body = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})");
  auto answer = answer_chat(body, tiny_context());
  engine::Event event;
  event.finish.emplace();
  event.finish->reason = engine::FinishReason::error;
  event.finish->error = std::make_shared<Error>(
      ErrorKind::out_of_memory,
      "[memory_admission] needs 9 GB of 8 GB");
  EXPECT_EQ(answer->take(0, event), "");
  EXPECT_THROW(answer->body(), Error);
  const auto frames = frames_of(answer->failure(*event.finish->error));
  ASSERT_EQ(frames.size(), 1u);
  const OrderedJson error = OrderedJson::parse(frames[0])["error"];
  EXPECT_EQ(error["type"], "memory_admission");
  EXPECT_EQ(error["code"], "context_over_budget");
}

}  // namespace

}  // namespace mlxx::api
