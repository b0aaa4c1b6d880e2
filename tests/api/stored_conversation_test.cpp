#include <gtest/gtest.h>

#include "mlxx/api/response_request.h"
#include "mlxx/api/response_store.h"
#include "mlxx/api/stored_responses.h"
#include "tests/api/block_cases.h"
#include "tests/api/random_bodies.h"

namespace mlxx::api {
namespace {

class StoredConversation : public ::testing::Test {
 protected:
  StoredConversation() : store_(ResponseStoreOptions{}) {
    context_ = tiny_context();
    context_.store = &store_;
  }

  OrderedJson answer(const OrderedJson& body, const std::string& text) {
    auto answer = answer_response(body, context_);
    return body_after(*answer, events_of({text}));
  }
  std::string prompt_of(const OrderedJson& body) {
    auto answer = answer_response(body, context_);
    return context_.model->tokenizer->decode(
        answer->take_requests().at(0).prompt);
  }
  std::string refusal_of(const OrderedJson& body) {
    try {
      answer_response(body, context_);
      return "accepted";
    } catch (const RequestError& error) {
      return fmt::format(
          "{} {} {}",
          error.status(),
          error.param(),
          error.code());
    }
  }
  int status_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const RequestError& error) {
      return error.status();
    }
    return 200;
  }

  ResponseStore store_;
  Context context_;
};

TEST_F(StoredConversation, GoesOnFromAnEarlierResponse) {
  const OrderedJson first =
      answer({{"input", "one"}, {"instructions", "be brief"}}, "ONE");
  EXPECT_EQ(first["store"], true);
  const OrderedJson second =
      answer({{"input", "two"}, {"previous_response_id", first["id"]}}, "TWO");
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  EXPECT_EQ(
      prompt_of({{"input", "three"}, {"previous_response_id", second["id"]}}),
      "[user] one[assistant] ONE[user] two[assistant] TWO[user] three"
      "[assistant]");
  // A branch of the same conversation.
  EXPECT_EQ(
      prompt_of({{"input", "other"}, {"previous_response_id", first["id"]}}),
      "[user] one[assistant] ONE[user] other[assistant]");
}

TEST_F(StoredConversation, CallsAreAnsweredInTheNextTurn) {
  const OrderedJson tools = OrderedJson::parse(
      R"([{"type": "function", "name": "f", "parameters": {}}])");
  const OrderedJson first = answer(
      {{"input", "hi"}, {"tools", tools}},
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
      "1}}\n</tool_call>");
  const std::string call = first["output"][0]["call_id"];
  EXPECT_TRUE(prompt_of({{"previous_response_id", first["id"]},
                         {"input",
                          {{{"type", "function_call_output"},
                            {"call_id", call},
                            {"output", "4"}}}}})
                  .ends_with("[call f {\"x\": 1}][tool f] 4[assistant]"));
}

TEST_F(StoredConversation, WhatIsUnknownIs404) {
  EXPECT_EQ(
      refusal_of({{"input", "hi"}, {"previous_response_id", "resp_x\n"}}),
      "404 previous_response_id previous_response_not_found");
  const OrderedJson hidden = answer({{"input", "a"}, {"store", false}}, "A");
  EXPECT_EQ(hidden["store"], false);
  EXPECT_EQ(
      refusal_of({{"input", "hi"}, {"previous_response_id", hidden["id"]}}),
      "404 previous_response_id previous_response_not_found");
  const OrderedJson first = answer({{"input", "a"}}, "A");
  const OrderedJson second =
      answer({{"input", "b"}, {"previous_response_id", first["id"]}}, "B");
  const std::string id = first["id"];
  EXPECT_EQ(
      OrderedJson::parse(delete_stored_response(&store_, id, 1700000001)),
      OrderedJson({{"id", id}, {"object", "response"}, {"deleted", true}}));
  EXPECT_EQ(
      refusal_of({{"input", "hi"}, {"previous_response_id", second["id"]}}),
      "404 previous_response_id previous_response_not_found");
  EXPECT_EQ(
      status_of([&] { delete_stored_response(&store_, id, 1700000001); }),
      404);
  EXPECT_EQ(status_of([&] { stored_response(nullptr, id, 1700000001); }), 404);
}

TEST_F(StoredConversation, AStoredResponseIsWhatWasAnswered) {
  OrderedJson body = {{"input", "a"}, {"stream", true}};
  auto answer = answer_response(body, context_);
  const auto frames = named_frames(stream_of(*answer, events_of({"ab", "c"})));
  const OrderedJson response = frames.back()["response"];
  EXPECT_EQ(
      OrderedJson::parse(stored_response(
          &store_,
          response["id"].get<std::string>(),
          1700000001)),
      response);
  EXPECT_EQ(store_.size().count, 1);
}

TEST_F(StoredConversation, NothingIsStoredOfAFailure) {
  OrderedJson body = {{"input", "a"}, {"stream", true}};
  auto answer = answer_response(body, context_);
  std::string stream = answer->begin();
  stream += answer->take(0, events_of({"abc"})[0]);
  engine::Event event;
  event.finish.emplace();
  event.finish->reason = engine::FinishReason::error;
  event.finish->error =
      std::make_shared<Error>(ErrorKind::internal, "[gpu] it broke");
  EXPECT_EQ(answer->take(0, event), "");
  EXPECT_THROW(answer->body(), Error);
  stream += answer->failure(*event.finish->error);
  const auto frames = named_frames(stream);
  EXPECT_EQ(frames.back()["type"], "response.failed");
  EXPECT_EQ(frames.back()["response"]["status"], "failed");
  EXPECT_EQ(frames.back()["response"]["error"]["code"], "server_error");
  EXPECT_EQ(frames.back()["sequence_number"], frames.size() - 1);
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);
  EXPECT_EQ(store_.size().count, 0);
}

TEST_F(StoredConversation, WhatIsTooLargeToStoreIsAnsweredAndSaysSo) {
  ResponseStoreOptions small;
  small.max_bytes = 100;
  ResponseStore store(small);
  context_.store = &store;
  EXPECT_EQ(answer({{"input", "a"}}, "A")["store"], false);
  EXPECT_EQ(store.size().count, 0);
}

TEST_F(StoredConversation, ItemsAreListedInPages) {
  OrderedJson input = OrderedJson::array();
  for (int i = 0; i < 5; ++i) {
    input.push_back(
        {{"role", "user"},
         {"content", fmt::format("{}", i)},
         {"id", fmt::format("msg_{}", i)}});
  }
  const std::string id = answer({{"input", input}}, "A")["id"];
  auto page = [&](const ItemPage& wanted) {
    OrderedJson list =
        OrderedJson::parse(stored_input_items(&store_, id, wanted, 1700000001));
    std::string out;
    for (const OrderedJson& item : list["data"]) {
      out += item["content"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(list["first_id"], fmt::format("msg_{}", out.substr(0, 1)));
    return out + (list["has_more"] ? "+" : "");
  };
  EXPECT_EQ(page({}), "43210");
  EXPECT_EQ(page({.limit = 2}), "43+");
  EXPECT_EQ(page({.limit = 2, .after = "msg_3"}), "21+");
  EXPECT_EQ(page({.limit = 2, .newest_first = false, .after = "msg_2"}), "34");
  for (const ItemPage& bad :
       {ItemPage{.limit = 0}, ItemPage{.limit = 101}, ItemPage{.after = "x"}}) {
    EXPECT_EQ(
        status_of([&] { stored_input_items(&store_, id, bad, 1700000001); }),
        400);
  }
}

TEST_F(StoredConversation, ItemsCanBeReferredTo) {
  const OrderedJson first = answer({{"input", "one"}}, "ONE");
  const OrderedJson reference = {
      {"type", "item_reference"},
      {"id", first["output"][0]["id"]}};
  EXPECT_EQ(
      prompt_of(
          {{"input",
            {{{"role", "user"}, {"content", "x"}},
             reference,
             {{"role", "user"}, {"content", "y"}}}}}),
      "[user] x[assistant] ONE[user] y[assistant]");
  EXPECT_EQ(
      refusal_of({{"input", {{{"type", "item_reference"}, {"id", "msg_x"}}}}}),
      "404 input[0].id item_not_found");
}

TEST_F(StoredConversation, TruncationLeavesOutTheOldestTurns) {
  OrderedJson input = OrderedJson::array();
  for (int i = 0; i < 30; ++i) {
    input.push_back(
        {{"role", "user"}, {"content", fmt::format("question {}", i)}});
    input.push_back(
        {{"role", "assistant"}, {"content", fmt::format("answer {}", i)}});
  }
  input.push_back({{"role", "user"}, {"content", "last"}});
  OrderedJson body = {
      {"input", input},
      {"instructions", "keep"},
      {"max_output_tokens", 20}};
  auto model = tiny_model();
  model->context_length = 400;
  context_.model = model;
  EXPECT_EQ(refusal_of(body), "400 input context_length_exceeded");
  body["truncation"] = "auto";
  auto answer = answer_response(body, context_);
  const engine::Request got = answer->take_requests().at(0);
  EXPECT_EQ(got.max_tokens, 20);
  EXPECT_LE(got.prompt.size() + 20, 400u);
  EXPECT_GT(got.prompt.size() + 20 + 60, 400u) << "no more than needed";
  const std::string prompt = model->tokenizer->decode(got.prompt);
  EXPECT_TRUE(prompt.starts_with("[system] keep[user] question 2")) << prompt;
  EXPECT_TRUE(prompt.ends_with("[user] last[assistant]")) << prompt;
  body["input"] = std::string(500, 'x');
  EXPECT_EQ(refusal_of(body), "400 input context_length_exceeded");
}

TEST_F(StoredConversation, TokensAreCountedAsTheyAreUsed) {
  const OrderedJson first = answer({{"input", "one"}}, "ONE");
  const OrderedJson body = {
      {"input", "two"},
      {"previous_response_id", first["id"]}};
  std::vector<std::string> ignored;
  const OrderedJson counted =
      OrderedJson::parse(count_response_tokens(body, context_, ignored));
  EXPECT_EQ(counted["object"], "response.input_tokens");
  EXPECT_EQ(
      counted["input_tokens"],
      answer_response(body, context_)->take_requests().at(0).prompt.size());
}

TEST_F(StoredConversation, NoJsonCrashesIt) {
  EXPECT_EQ(
      random_bodies_crash(
          response_fields(),
          [&](const OrderedJson& body) { answer_response(body, context_); }),
      "");
}

}  // namespace
}  // namespace mlxx::api
