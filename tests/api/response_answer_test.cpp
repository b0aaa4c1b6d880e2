#include <map>

#include <gtest/gtest.h>

#include "mlxx/api/response_request.h"
#include "mlxx/api/response_store.h"
#include "tests/api/block_cases.h"
#include "tests/api/random_bodies.h"

namespace mlxx::api {
namespace {

// What the data files say of an item.
OrderedJson shown(const OrderedJson& items) {
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& item : items) {
    OrderedJson one = {{"type", item["type"]}};
    if (item["type"] == "function_call") {
      EXPECT_TRUE(item["call_id"].get<std::string>().starts_with("call_"));
      one["name"] = item["name"];
      one["arguments"] = item["arguments"];
    } else {
      EXPECT_EQ(item["content"].size(), 1u);
      one["text"] = item["content"][0]["text"];
    }
    out.push_back(std::move(one));
  }
  return out;
}

// Follows a stream as strict clients do.
class Follower {
 public:
  void take(const OrderedJson& frame) {
    const std::string type = frame["type"];
    SCOPED_TRACE(frame.dump());
    EXPECT_EQ(frame["sequence_number"], next_++);
    EXPECT_TRUE(response_.is_null()) << "an event after the last one";
    if (type == "response.created" || type == "response.in_progress") {
      EXPECT_EQ(next_, type == "response.created" ? 1 : 2);
      EXPECT_EQ(frame["response"]["status"], "in_progress");
      id_ = frame["response"]["id"];
    } else if (frame.contains("response")) {
      EXPECT_EQ(frame["response"]["id"], id_);
      EXPECT_TRUE(item_.is_null());
      response_ = frame["response"];
    } else if (type == "response.output_item.added") {
      EXPECT_TRUE(item_.is_null());
      EXPECT_EQ(frame["output_index"], items_.size());
      item_ = frame["item"];
      EXPECT_EQ(item_["status"], "in_progress");
    } else if (type == "response.output_item.done") {
      EXPECT_EQ(frame["output_index"], items_.size());
      EXPECT_EQ(frame["item"]["id"], item_["id"]);
      item_["status"] = frame["item"]["status"];
      if (frame["item"].contains("encrypted_content")) {
        item_["encrypted_content"] = frame["item"]["encrypted_content"];
      }
      EXPECT_EQ(item_, frame["item"]);
      items_.push_back(item_);
      item_ = nullptr;
    } else {
      take_part(type, frame);
    }
  }

  OrderedJson response() const {
    EXPECT_EQ(response_["output"], items_);
    return response_;
  }

 private:
  void take_part(const std::string& type, const OrderedJson& frame) {
    EXPECT_EQ(frame["item_id"], item_["id"]);
    EXPECT_EQ(frame["output_index"], items_.size());
    const bool is_call = item_["type"] == "function_call";
    const char* list =
        type.find("summary") != std::string::npos ? "summary" : "content";
    if (!is_call) {
      EXPECT_EQ(frame[std::string(list) + "_index"], 0);
    }
    if (type.ends_with("part.added")) {
      item_[list] = OrderedJson::array({frame["part"]});
    } else if (type.ends_with("part.done")) {
      EXPECT_EQ(item_[list][0], frame["part"]);
    } else if (type.ends_with(".delta")) {
      EXPECT_NE(frame["delta"], "");
      OrderedJson& text = is_call ? item_["arguments"] : item_[list][0]["text"];
      text = text.get<std::string>() + frame["delta"].get<std::string>();
      if (frame.contains("logprobs")) {
        for (const OrderedJson& one : frame["logprobs"]) {
          item_[list][0]["logprobs"].push_back(one);
        }
      }
    } else {
      EXPECT_TRUE(type.ends_with(".done"));
      EXPECT_EQ(
          is_call ? item_["arguments"] : item_[list][0]["text"],
          is_call ? frame["arguments"] : frame["text"]);
    }
  }

  int64_t next_ = 0;
  OrderedJson id_;
  OrderedJson item_;
  OrderedJson items_ = OrderedJson::array();
  OrderedJson response_;
};

OrderedJson assembled(const std::string& stream) {
  Follower follower;
  const auto frames = named_frames(stream);
  for (const OrderedJson& frame : frames) {
    follower.take(frame);
  }
  const OrderedJson response = follower.response();
  const std::string last = frames.back()["type"];
  EXPECT_EQ(last, "response." + response["status"].get<std::string>());
  return response;
}

TEST(ResponseAnswer, SaysWhatTheModelMeant) {
  EXPECT_GT(block_cases().size(), 15u);
  for (const BlockCase& test : block_cases()) {
    SCOPED_TRACE(test.about());
    auto answer = answer_response(test.responses_body(false), test.context());
    const OrderedJson body = body_after(*answer, test.events({test.text()}));
    EXPECT_EQ(body["object"], "response");
    EXPECT_EQ(body["model"], "tiny");
    EXPECT_TRUE(body["id"].get<std::string>().starts_with("resp_"));
    EXPECT_EQ(shown(body["output"]), test.json["items"]);
    EXPECT_EQ(body["status"], test.json["status"]);
    if (body["status"] == "incomplete") {
      EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
      EXPECT_EQ(body["output"].back()["status"], "incomplete");
    } else {
      EXPECT_TRUE(body["incomplete_details"].is_null());
    }
    std::map<std::string, int> ids;
    for (const OrderedJson& item : body["output"]) {
      EXPECT_EQ(ids[item["id"]]++, 0);
    }
  }
}

TEST(ResponseAnswer, StreamsSayTheSameHoweverTheTextIsCut) {
  for (const BlockCase& test : block_cases()) {
    SCOPED_TRACE(test.about());
    auto whole = answer_response(test.responses_body(false), test.context());
    const OrderedJson body = body_after(*whole, test.events({test.text()}));
    for (const auto& pieces : cuts_of(test.text())) {
      auto stream = answer_response(test.responses_body(true), test.context());
      ASSERT_TRUE(stream->streams());
      ASSERT_EQ(assembled(stream_of(*stream, test.events(pieces))), body);
    }
  }
}

// block_transcripts streams writes these files.
TEST(ResponseAnswer, StreamsAreTheKeptOnesByteForByte) {
  for (const auto& [name, about] : kKeptStreams) {
    std::ifstream file(stream_file("responses", name));
    EXPECT_EQ(
        stream_to_keep("responses", about),
        std::string(std::istreambuf_iterator<char>(file), {}));
  }
}

OrderedJson request(const char* more) {
  OrderedJson body = {{"input", "hi"}};
  body.update(OrderedJson::parse(more));
  return body;
}

std::string prompt_of(const OrderedJson& body, const Context& context) {
  auto answer = answer_response(body, context);
  return context.model->tokenizer->decode(answer->take_requests().at(0).prompt);
}

std::string refusal_of(const OrderedJson& body, const Context& context) {
  try {
    answer_response(body, context);
    return "accepted";
  } catch (const RequestError& error) {
    return fmt::format("{} {}", error.status(), error.param());
  }
}

std::string refusal_of(const char* more) {
  return refusal_of(request(more), tiny_context());
}

TEST(ResponseAnswer, ItemsBecomeAConversation) {
  const Context context = tiny_context();
  EXPECT_EQ(
      prompt_of(request(R"({"instructions": "be brief"})"), context),
      "[system] be brief[user] hi[assistant]");
  EXPECT_EQ(
      prompt_of(
          request(R"({"input": [{"role": "developer", "content": "d"},
          {"role": "user", "content": [{"type": "input_text", "text": "a"},
          {"type": "input_text", "text": "b"}]},
          {"type": "reasoning", "id": "rs_1", "summary": []},
          {"type": "function_call", "call_id": "c1", "name": "f",
          "arguments": "{\"x\": 1}"},
          {"type": "function_call_output", "call_id": "c1", "output": "4"},
          {"type": "message", "role": "assistant", "id": "msg_1",
          "content": [{"type": "output_text", "text": "four"}]},
          {"role": "user", "content": "and"}]})"),
          context),
      "[system] d[user] ab[assistant] [call f {\"x\": 1}][tool f] 4"
      "[assistant] four[user] and[assistant]");
}

TEST(ResponseAnswer, WhatCannotBeDoneIsRefusedByName) {
  EXPECT_EQ(refusal_of(R"({"input": null})"), "400 input");
  EXPECT_EQ(refusal_of(R"({"input": []})"), "400 input");
  EXPECT_EQ(
      refusal_of(R"({"input": [{"role": "user", "content": [
      {"type": "input_image", "image_url": "x"}]}]})"),
      "400 input[0].content[0].type");
  EXPECT_EQ(
      refusal_of(R"({"input": [{"type": "web_search_call", "id": "w"}]})"),
      "400 input[0].type");
  EXPECT_EQ(
      refusal_of(R"({"tools": [{"type": "file_search"}]})"),
      "400 tools[0].type");
  EXPECT_EQ(refusal_of(R"({"background": true})"), "400 background");
  EXPECT_EQ(refusal_of(R"({"prompt": {"id": "p"}})"), "400 prompt");
  EXPECT_EQ(refusal_of(R"({"conversation": "c"})"), "400 conversation");
  EXPECT_EQ(
      refusal_of(R"({"previous_response_id": "resp_1"})"),
      "400 previous_response_id");
  EXPECT_EQ(refusal_of(R"({"include": ["x"]})"), "400 include");
  EXPECT_EQ(
      refusal_of(R"({"text": {"format": {"type": "json_schema", "name": "s",
      "schema": {"type": "wat"}}}})"),
      "400 text.format.schema");
  EXPECT_EQ(refusal_of(R"({"tool_choice": "required"})"), "400 tool_choice");
  auto model = tiny_model();
  model->context_length = 8;
  EXPECT_EQ(refusal_of(request("{}"), tiny_context(model)), "400 input");
}

TEST(ResponseAnswer, WhatWasAskedForIsSaidAgain) {
  auto answer = answer_response(
      request(R"({"instructions": "i", "max_output_tokens": 7,
      "temperature": 0.7, "top_p": 0.9, "metadata": {"a": "b"},
      "tools": [{"type": "function", "name": "f", "strict": true,
      "parameters": {"type": "object"}}], "tool_choice": "none",
      "parallel_tool_calls": false, "truncation": "auto",
      "reasoning": {"effort": "low"}})"),
      tiny_context());
  const engine::Request got = answer->take_requests().at(0);
  EXPECT_EQ(got.max_tokens, 7);
  EXPECT_FALSE(got.constraint);
  const OrderedJson body = body_after(*answer, events_of({"abc"}));
  EXPECT_EQ(body["instructions"], "i");
  EXPECT_EQ(body["max_output_tokens"], 7);
  EXPECT_EQ(body["temperature"], 0.7);
  EXPECT_EQ(body["top_p"], 0.9);
  EXPECT_EQ(body["metadata"]["a"], "b");
  EXPECT_EQ(body["tools"][0]["name"], "f");
  EXPECT_EQ(body["tool_choice"], "none");
  EXPECT_EQ(body["parallel_tool_calls"], false);
  EXPECT_EQ(body["truncation"], "auto");
  EXPECT_EQ(body["reasoning"]["effort"], "low");
  EXPECT_EQ(body["store"], false);
  EXPECT_EQ(body["usage"]["input_tokens"], 10);
  EXPECT_EQ(body["usage"]["input_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(body["usage"]["output_tokens"], 3);
  EXPECT_EQ(body["usage"]["total_tokens"], 13);
}

TEST(ResponseAnswer, AFormatConstrainsTheAnswer) {
  auto answer = answer_response(
      request(R"({"text": {"format": {"type": "json_schema", "name": "s",
      "schema": {"type": "object", "properties": {"a": {"enum": ["x"]}}}}}})"),
      tiny_context());
  const engine::Request got = answer->take_requests().at(0);
  ASSERT_TRUE(got.constraint);
  EXPECT_EQ(got.constraint->kind, text::GrammarKind::json_schema);
}

TEST(ResponseAnswer, LogprobsAreOfTheTextAlone) {
  const Context context = tiny_context(tiny_model(kThinkingTemplate));
  OrderedJson body = request(
      R"({"include": ["message.output_text.logprobs"], "stream": true})");
  auto answer = answer_response(body, context);
  EXPECT_EQ(answer->take_requests().at(0).top_logprobs, 0);
  const OrderedJson response = assembled(
      stream_of(*answer, events_of({"hm", "</think>", "\n\n", "y", "e", "s"})));
  const OrderedJson& part = response["output"][1]["content"][0];
  std::string text;
  for (const OrderedJson& one : part["logprobs"]) {
    text += one["token"].get<std::string>();
  }
  EXPECT_EQ(text, "yes");
}

TEST(ResponseAnswer, ReasoningCanComeAsItsSummaryAndEncrypted) {
  const Context context = tiny_context(tiny_model(kThinkingTemplate));
  auto answer = answer_response(
      request(R"({"reasoning": {"summary": "auto"}, "stream": true,
      "include": ["reasoning.encrypted_content"]})"),
      context);
  const std::string stream =
      stream_of(*answer, events_of({"hm", "</think>yes"}));
  const OrderedJson item = assembled(stream)["output"][0];
  EXPECT_EQ(item["summary"][0]["text"], "hm");
  EXPECT_FALSE(item.contains("content"));
  EXPECT_NE(
      stream.find("event: response.reasoning_summary_text.delta"),
      std::string::npos);
  constexpr const char* kShowsReasoning =
      "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}|"
      "{{ m.content }}{% endfor %}";
  OrderedJson carried = item;
  carried["summary"] = OrderedJson::array();
  EXPECT_EQ(
      prompt_of(
          {{"input",
            {carried,
             {{"role", "assistant"}, {"content", "yes"}},
             {{"role", "user"}, {"content", "and"}}}}},
          tiny_context(tiny_model(kShowsReasoning))),
      "[assistant]hm|yes[user]|and");
}

}  // namespace
}  // namespace mlxx::api
