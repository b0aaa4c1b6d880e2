#include <gtest/gtest.h>

#include "mlxx/api/carried_text.h"
#include "mlxx/api/messages.h"
#include "tests/api/block_cases.h"
#include "tests/api/random_bodies.h"

namespace mlxx::api {
namespace {

// What the data files say of a block.
OrderedJson shown(const OrderedJson& blocks) {
  OrderedJson out = OrderedJson::array();
  for (OrderedJson block : blocks) {
    if (block["type"] == "tool_use") {
      EXPECT_TRUE(block["id"].get<std::string>().starts_with("toolu_"));
    }
    if (block["type"] == "thinking") {
      EXPECT_EQ(block["signature"].get<std::string>().size(), 32u);
    }
    block.erase("id");
    block.erase("signature");
    out.push_back(std::move(block));
  }
  return out;
}

// Puts a stream together as clients do, and checks what every stream keeps to.
OrderedJson assembled(const std::string& stream) {
  const auto frames = named_frames(stream);
  OrderedJson message;
  std::string json;
  bool open = false;
  bool ended = false;
  for (size_t i = 0; i < frames.size(); ++i) {
    const OrderedJson& frame = frames[i];
    const std::string type = frame["type"];
    EXPECT_EQ(type == "message_start", i == 0);
    EXPECT_EQ(type == "message_stop", i + 1 == frames.size());
    if (type == "message_start") {
      message = frame["message"];
      EXPECT_EQ(message["content"], OrderedJson::array());
      EXPECT_TRUE(message["stop_reason"].is_null());
      EXPECT_GT(message["usage"]["input_tokens"], 0);
    } else if (type == "content_block_start") {
      EXPECT_FALSE(open || ended);
      EXPECT_EQ(frame["index"], message["content"].size());
      message["content"].push_back(frame["content_block"]);
      open = true;
      json.clear();
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      EXPECT_EQ(frame["index"], message["content"].size() - 1);
      OrderedJson& block = message["content"].back();
      const OrderedJson& delta = frame["delta"];
      auto add = [&](const char* key) {
        block[key] =
            block[key].get<std::string>() + delta[key].get<std::string>();
      };
      if (delta["type"] == "text_delta") {
        EXPECT_EQ(block["type"], "text");
        add("text");
      } else if (delta["type"] == "thinking_delta") {
        add("thinking");
      } else if (delta["type"] == "signature_delta") {
        add("signature");
      } else {
        EXPECT_EQ(delta["type"], "input_json_delta");
        json += delta["partial_json"].get<std::string>();
      }
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(open);
      EXPECT_EQ(frame["index"], message["content"].size() - 1);
      OrderedJson& block = message["content"].back();
      if (block["type"] == "tool_use" && !json.empty()) {
        block["input"] = OrderedJson::parse(json);
      }
      open = false;
    } else if (type == "message_delta") {
      EXPECT_FALSE(open);
      ended = true;
      message["stop_reason"] = frame["delta"]["stop_reason"];
      message["stop_sequence"] = frame["delta"]["stop_sequence"];
      message["usage"] = frame["usage"];
    } else if (type != "message_stop") {
      EXPECT_EQ(type, "ping");
    }
  }
  EXPECT_TRUE(ended);
  return message;
}

TEST(MessagesAnswer, SaysWhatTheModelMeant) {
  for (const BlockCase& test : block_cases()) {
    SCOPED_TRACE(test.about());
    auto answer = answer_messages(test.messages_body(false), test.context());
    const OrderedJson body = body_after(*answer, test.events({test.text()}));
    EXPECT_EQ(body["type"], "message");
    EXPECT_EQ(body["role"], "assistant");
    EXPECT_EQ(body["model"], "tiny");
    EXPECT_TRUE(body["id"].get<std::string>().starts_with("msg_"));
    EXPECT_EQ(shown(body["content"]), test.json["blocks"]);
    EXPECT_EQ(body["stop_reason"], test.json["stop_reason"]);
    if (test.json.contains("stop_sequence")) {
      EXPECT_EQ(body["stop_sequence"], test.json["stop_sequence"]);
    } else {
      EXPECT_TRUE(body["stop_sequence"].is_null());
    }
  }
}

TEST(MessagesAnswer, StreamsSayTheSameHoweverTheTextIsCut) {
  for (const BlockCase& test : block_cases()) {
    SCOPED_TRACE(test.about());
    for (const auto& pieces : cuts_of(test.text())) {
      auto plain = answer_messages(test.messages_body(false), test.context());
      auto stream = answer_messages(test.messages_body(true), test.context());
      ASSERT_TRUE(stream->streams());
      ASSERT_EQ(
          assembled(stream_of(*stream, test.events(pieces))),
          body_after(*plain, test.events(pieces)));
      auto whole = answer_messages(test.messages_body(false), test.context());
      ASSERT_EQ(
          body_after(*whole, test.events({test.text()}))["content"],
          assembled(stream_of(
              *answer_messages(test.messages_body(true), test.context()),
              test.events(pieces)))["content"]);
    }
  }
}

// block_transcripts streams writes these files.
TEST(MessagesAnswer, StreamsAreTheKeptOnesByteForByte) {
  for (const auto& [name, about] : kKeptStreams) {
    std::ifstream file(stream_file("messages", name));
    EXPECT_EQ(
        stream_to_keep("messages", about),
        std::string(std::istreambuf_iterator<char>(file), {}));
  }
}

OrderedJson request(const char* more) {
  OrderedJson body = OrderedJson::parse(
      R"({"model": "tiny", "max_tokens": 50,
      "messages": [{"role": "user", "content": "hi"}]})");
  body.update(OrderedJson::parse(more));
  return body;
}

std::string prompt_of(const OrderedJson& body, const Context& context) {
  auto answer = answer_messages(body, context);
  return context.model->tokenizer->decode(answer->take_requests().at(0).prompt);
}

std::string prompt_of(const char* more) {
  return prompt_of(request(more), tiny_context());
}

std::string refusal_of(const char* more) {
  try {
    answer_messages(request(more), tiny_context());
    return "accepted";
  } catch (const RequestError& error) {
    return fmt::format("{} {}", error.status(), error.param());
  }
}

TEST(MessagesAnswer, UsageCountsThePrompt) {
  const Context context = tiny_context();
  const OrderedJson body = request("{}");
  auto answer = answer_messages(body, context);
  const size_t tokens = answer->take_requests().at(0).prompt.size();
  std::vector<std::string> ignored;
  OrderedJson counted =
      OrderedJson::parse(count_message_tokens(body, context, ignored));
  EXPECT_EQ(counted["input_tokens"], tokens);
  EXPECT_EQ(ignored, std::vector<std::string>{"max_tokens"});
  auto events = events_of({"abc"});
  events.back().finish->usage.reasoning_tokens = 2;
  const OrderedJson usage = body_after(*answer, events)["usage"];
  EXPECT_EQ(usage["cache_read_input_tokens"], 4);
  EXPECT_EQ(usage["input_tokens"], tokens - 4);
  EXPECT_EQ(usage["output_tokens"], 3);
  EXPECT_EQ(usage["output_tokens_details"]["thinking_tokens"], 2);
}

TEST(MessagesAnswer, BlocksAndStringsAreTheSamePrompt) {
  EXPECT_EQ(
      prompt_of(R"({"system": "be brief"})"),
      prompt_of(R"({"system": [{"type": "text", "text": "be brief",
      "cache_control": {"type": "ephemeral"}}], "messages": [{"role": "user",
      "content": [{"type": "text", "text": "hi"}]}]})"));
  EXPECT_EQ(
      prompt_of(R"({"system": "be brief"})"),
      "[system] be brief[user] hi[assistant]");
  EXPECT_EQ(
      prompt_of(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "user", "content": [{"type": "text", "text": "b"},
      {"type": "text", "text": "c"}]}]})"),
      "[user] a\nb\nc[assistant]");
}

TEST(MessagesAnswer, CallsAndResultsReachTheModel) {
  EXPECT_EQ(
      prompt_of(R"({"messages": [{"role": "user", "content": "hi"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm",
      "signature": ""}, {"type": "text", "text": "so"}, {"type": "tool_use",
      "id": "c1", "name": "f", "input": {"x": [1, "é"]}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1",
      "content": [{"type": "text", "text": "4"}]},
      {"type": "tool_result", "tool_use_id": "c2", "content": "no",
      "is_error": true}, {"type": "text", "text": "go on"}]}]})"),
      "[user] hi[assistant] so[call f {\"x\": [1, \"é\"]}][tool f] 4"
      "[tool] Error: no[user] go on[assistant]");
}

TEST(MessagesAnswer, ALastTurnOfTheAssistantIsContinued) {
  EXPECT_EQ(
      prompt_of(R"({"messages": [{"role": "user", "content": "hi"},
      {"role": "assistant", "content": "The answer is ("}]})"),
      "[user] hi[assistant] The answer is (");
  EXPECT_EQ(
      prompt_of(R"({"messages": [{"role": "user", "content": "hi"},
      {"role": "assistant", "content": ""}]})"),
      "[user] hi[assistant]");
  EXPECT_EQ(
      refusal_of(R"({"messages": [{"role": "assistant", "content": [
      {"type": "tool_use", "id": "c", "name": "f", "input": {}}]}]})"),
      "400 messages");
}

TEST(MessagesAnswer, WhatCannotBeDoneIsRefusedByName) {
  EXPECT_EQ(refusal_of(R"({"max_tokens": null})"), "400 max_tokens");
  EXPECT_EQ(
      refusal_of(R"({"max_tokens": 4611686018427387904})"),
      "400 max_tokens");
  EXPECT_EQ(refusal_of(R"({"messages": []})"), "400 messages");
  EXPECT_EQ(
      refusal_of(R"({"messages": [{"role": "user", "content": []}]})"),
      "400 messages[0].content");
  for (const char* type :
       {"image", "document", "search_result", "server_tool_use", "wat"}) {
    EXPECT_EQ(
        refusal_of(fmt::format(
                       R"({{"messages": [{{"role": "user", "content": [
                       {{"type": "{}", "source": {{}}}}]}}]}})",
                       type)
                       .c_str()),
        "400 messages[0].content[0].type");
  }
  EXPECT_EQ(
      refusal_of(R"({"messages": [{"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "c", "content": [
      {"type": "image", "source": {}}]}]}]})"),
      "400 messages[0].content[0].content[0].type");
  EXPECT_EQ(
      refusal_of(R"({"tools": [{"type": "web_search_20250305",
      "name": "web_search", "max_uses": 3}]})"),
      "400 tools[0].type");
  EXPECT_EQ(
      refusal_of(R"({"tool_choice": {"type": "any"}})"),
      "400 tool_choice.type");
  EXPECT_EQ(
      refusal_of(R"({"thinking": {"type": "enabled", "budget_tokens": 50}})"),
      "400 thinking");
  EXPECT_EQ(
      refusal_of(R"({"tools": [{"name": "f", "input_schema": {}},
      {"name": "f", "input_schema": {}}]})"),
      "400 tools");
  EXPECT_EQ(
      refusal_of(R"({"tools": [{"name": "f g", "input_schema": {}}]})"),
      "400 tools[0].name");
  EXPECT_EQ(refusal_of(R"({"temperature": 1.5})"), "400 temperature");
  EXPECT_EQ(refusal_of(R"({"stop_sequences": [""]})"), "400 stop_sequences");
}

TEST(MessagesAnswer, OptionsReachTheEngine) {
  auto answer = answer_messages(
      request(R"({"stop_sequences": ["a", "b"], "temperature": 0.5, "top_k": 7,
      "top_p": 0.25, "seed": 3, "adapters": "x",
      "thinking": {"type": "enabled", "budget_tokens": 9}})"),
      tiny_context(tiny_model(kThinkingTemplate)));
  const engine::Request got = answer->take_requests().at(0);
  EXPECT_EQ(got.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_FLOAT_EQ(got.sampling.temperature, 0.5f);
  EXPECT_EQ(got.sampling.top_k, 7);
  EXPECT_FLOAT_EQ(got.sampling.top_p, 0.25f);
  EXPECT_EQ(got.sampling.seed, 3);
  EXPECT_EQ(got.adapter, "x");
  EXPECT_EQ(got.max_tokens, 50);
  ASSERT_TRUE(got.reasoning);
  EXPECT_EQ(got.reasoning->budget, 9);
  EXPECT_TRUE(got.reasoning->open);
}

TEST(MessagesAnswer, ThinkingCanBeSwitchedOff) {
  const Context context = tiny_context(tiny_model(kThinkingTemplate));
  EXPECT_TRUE(prompt_of(request("{}"), context).ends_with("<think>\n"));
  EXPECT_TRUE(
      prompt_of(request(R"({"thinking": {"type": "adaptive"}})"), context)
          .ends_with("<think>\n"));
  EXPECT_TRUE(
      prompt_of(request(R"({"thinking": {"type": "disabled"}})"), context)
          .ends_with("</think>\n\n"));
}

TEST(MessagesAnswer, OmittedThinkingComesBackByItsSignature) {
  const char* more =
      R"({"thinking": {"type": "adaptive", "display": "omitted"},
      "stream": true})";
  const Context context = tiny_context(tiny_model(kThinkingTemplate));
  auto answer = answer_messages(request(more), context);
  const OrderedJson message =
      assembled(stream_of(*answer, events_of({"hm é</think>yes"})));
  const OrderedJson& block = message["content"][0];
  EXPECT_EQ(block["thinking"], "");
  EXPECT_EQ(carried_text(block["signature"].get<std::string>()), "hm é");
  EXPECT_EQ(message["content"][1]["text"], "yes");
  constexpr const char* kShowsReasoning =
      "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}|"
      "{{ m.content }}{% endfor %}";
  OrderedJson next = request("{}");
  next["messages"].push_back(
      {{"role", "assistant"}, {"content", message["content"]}});
  next["messages"].push_back({{"role", "user"}, {"content", "and"}});
  EXPECT_EQ(
      prompt_of(next, tiny_context(tiny_model(kShowsReasoning))),
      "[user]|hi[assistant]hm é|yes[user]|and");
}

TEST(MessagesAnswer, AFullContextIsToldApart) {
  auto model = tiny_model();
  model->context_length = 40;
  auto answer = answer_messages(request("{}"), tiny_context(model));
  EXPECT_LT(answer->take_requests().at(0).max_tokens, 50);
  auto events = events_of({"abc"}, engine::FinishReason::length);
  EXPECT_EQ(
      body_after(*answer, events)["stop_reason"],
      "model_context_window_exceeded");
}

TEST(MessagesAnswer, FailuresEndTheStreamInAnthropicsShape) {
  auto answer = answer_messages(request(R"({"stream": true})"), tiny_context());
  std::string stream = answer->begin();
  auto events = events_of({"abc"});
  stream += answer->take(0, events[0]);
  engine::Event event;
  event.finish.emplace();
  event.finish->reason = engine::FinishReason::error;
  event.finish->error =
      std::make_shared<engine::Busy>("[engine] \xff stops\n", 3, false);
  EXPECT_EQ(answer->take(0, event), "");
  EXPECT_THROW(answer->body(), engine::Busy);
  stream += answer->failure(*event.finish->error);
  const auto frames = named_frames(stream);
  EXPECT_EQ(frames.back()["type"], "error");
  EXPECT_EQ(frames.back()["error"]["type"], "overloaded_error");
  EXPECT_TRUE(
      frames.back()["request_id"].get<std::string>().starts_with("msg_"));
}

TEST(MessagesAnswer, NoJsonCrashesIt) {
  const Context context = tiny_context();
  EXPECT_EQ(
      random_bodies_crash(
          message_fields(),
          [&](const OrderedJson& body) { answer_messages(body, context); }),
      "");
  EXPECT_EQ(
      random_bodies_crash(
          count_tokens_fields(),
          [&](const OrderedJson& body) {
            std::vector<std::string> ignored;
            count_message_tokens(body, context, ignored);
          }),
      "");
}

}  // namespace
}  // namespace mlxx::api
