#include <chrono>
#include <functional>

#include <gtest/gtest.h>

#include "mlxx/api/chat_request.h"
#include "mlxx/api/errors.h"
#include "tests/api/tiny_model.h"

namespace mlxx::api {

namespace {

OrderedJson chat_body(std::string_view more = "{}") {
  OrderedJson body = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "hi"}]})");
  body.update(OrderedJson::parse(more));
  return body;
}

engine::Request request_of(
    const OrderedJson& body,
    const Context& context = tiny_context()) {
  return answer_chat(body, context)->take_requests().at(0);
}

engine::Request request_with(std::string_view more) {
  return request_of(chat_body(more));
}

std::string prompt_of(
    const OrderedJson& body,
    const Context& context = tiny_context()) {
  return context.model->tokenizer->decode(request_of(body, context).prompt);
}

// What the body is refused with: "400 param code".
std::string refusal_of(
    const OrderedJson& body,
    const Context& context = tiny_context()) {
  try {
    answer_chat(body, context);
    return "accepted";
  } catch (const std::exception& error) {
    const ErrorReply reply = describe_error(error);
    return fmt::format("{} {} {}", reply.status, reply.param, reply.code);
  }
}

std::string refusal_with(std::string_view more) {
  return refusal_of(chat_body(more));
}

TEST(ChatRequest, WrongTypesNameTheField) {
  EXPECT_EQ(
      refusal_with(R"({"temperature": "hot"})"),
      "400 temperature invalid_type");
  EXPECT_EQ(refusal_with(R"({"stream": "yes"})"), "400 stream invalid_type");
  EXPECT_EQ(refusal_with(R"({"messages": {}})"), "400 messages invalid_type");
  EXPECT_EQ(refusal_with(R"({"messages": [1]})"), "400 messages[0] ");
  EXPECT_EQ(refusal_with(R"({"messages": []})"), "400 messages invalid_value");
  EXPECT_EQ(
      refusal_with(R"({"messages": null})"),
      "400 messages missing_required_parameter");
  EXPECT_EQ(
      refusal_with(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "wizard", "content": "b"}]})"),
      "400 messages[1].role invalid_value");
  EXPECT_EQ(
      refusal_with(R"({"messages": [{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "text"}]}]})"),
      "400 messages[0].content[1].text missing_required_parameter");
  EXPECT_EQ(refusal_with(R"({"model": 5})"), "400 model invalid_type");
  EXPECT_EQ(refusal_with(R"({"top_p": 1.5})"), "400 top_p invalid_value");
  EXPECT_EQ(
      refusal_with(R"({"max_tokens": 1.5})"),
      "400 max_tokens invalid_value");
  EXPECT_EQ(refusal_of(OrderedJson::array()), "400  ");
  EXPECT_EQ(refusal_of(OrderedJson("x")), "400  ");
  EXPECT_EQ(refusal_of(OrderedJson(nullptr)), "400  ");
}

TEST(ChatRequest, HugeNumbersAreRefusedOrCapped) {
  for (const char* value :
       {"1000000000", "4611686018427387904", "1e300", "-2"}) {
    EXPECT_EQ(
        refusal_with(fmt::format(R"({{"n": {}}})", value)),
        "400 n invalid_value");
  }
  EXPECT_EQ(refusal_with(R"({"n": 0})"), "400 n invalid_value");
  EXPECT_EQ(refusal_with(R"({"n": 17})"), "400 n invalid_value");
  EXPECT_EQ(request_with(R"({"n": 16.0})").n, 16);
  EXPECT_EQ(
      refusal_with(R"({"max_tokens": 4611686018427387904})"),
      "400 max_tokens invalid_value");
  EXPECT_EQ(
      refusal_with(R"({"logprobs": true, "top_logprobs": 259})"),
      "400 top_logprobs invalid_value");
  const OrderedJson stops = std::vector<std::string>(1000, "x");
  OrderedJson body = chat_body();
  body["stop"] = stops;
  EXPECT_EQ(refusal_of(body), "400 stop array_above_max_length");
  body["stop"] = std::string(2000, 'x');
  EXPECT_EQ(refusal_of(body), "400 stop invalid_value");
  body["stop"] = "";
  EXPECT_EQ(refusal_of(body), "400 stop invalid_value");
}

TEST(ChatRequest, AnswersStayWithinContextAndLimits) {
  auto model = tiny_model();
  model->context_length = 64;
  Context context = tiny_context(model);
  OrderedJson body = chat_body(R"({"max_tokens": 100})");
  const engine::Request request = request_of(body, context);
  EXPECT_EQ(request.max_tokens, 64 - static_cast<int>(request.prompt.size()));
  context.limits.max_tokens = 7;
  EXPECT_EQ(request_of(body, context).max_tokens, 7);
  EXPECT_EQ(request_of(chat_body(), context).max_tokens, 7);
  body["messages"][0]["content"] = std::string(60, 'x');
  EXPECT_EQ(refusal_of(body, context), "400 messages context_length_exceeded");

  EXPECT_EQ(request_with("{}").max_tokens, 512);
  EXPECT_EQ(request_with(R"({"max_tokens": 3})").max_tokens, 3);
  EXPECT_EQ(
      request_with(R"({"max_tokens": 3, "max_completion_tokens": 4})")
          .max_tokens,
      4);
  EXPECT_GT(request_with(R"({"max_tokens": -1})").max_tokens, 4000);
  EXPECT_EQ(
      refusal_with(R"({"max_tokens": 0})"),
      "400 max_tokens invalid_value");
}

TEST(ChatRequest, TextsManyTimesTheContextAreNotReadWhole) {
  Context context = tiny_context();
  OrderedJson body = chat_body();
  body["messages"][0]["content"] = std::string(15 << 20, 'x');
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(refusal_of(body, context), "400 messages context_length_exceeded");
  body["messages"] = OrderedJson::array();
  for (int i = 0; i < 4000; ++i) {
    body["messages"].push_back(
        {{"role", "user"}, {"content", std::string(1000, 'x')}});
  }
  EXPECT_EQ(refusal_of(body, context), "400 messages context_length_exceeded");
  const std::string long_text(15 << 20, 'x');
  body = chat_body();
  body["tools"] = OrderedJson::array(
      {{{"type", "function"},
        {"function", {{"name", "f"}, {"description", long_text}}}}});
  EXPECT_EQ(refusal_of(body, context), "400 tools context_length_exceeded");
  body["tool_choice"] = "none";
  EXPECT_EQ(refusal_of(body, context), "accepted");
  body = chat_body();
  body["messages"].push_back(
      {{"role", "assistant"},
       {"tool_calls",
        OrderedJson::array(
            {{{"id", "1"},
              {"type", "function"},
              {"function",
               {{"name", "f"},
                {"arguments", OrderedJson({{"x", long_text}}).dump()}}}}})}});
  EXPECT_EQ(refusal_of(body, context), "400 messages context_length_exceeded");
  // All of it as tokens takes many times as long.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  // Long, but of few tokens.
  const std::string word = "abcdefghijklmnopqrstuvwxyz0123456789";
  auto words = [&](int count) {
    std::string out;
    for (int i = 0; i < count; ++i) {
      out += word;
    }
    return out;
  };
  auto model = tiny_model();
  model->tokenizer = generate::tiny_tokenizer({word});
  model->context_length = 300;
  body = chat_body();
  body["messages"][0]["content"] = words(200);
  EXPECT_EQ(refusal_of(body, tiny_context(model)), "accepted");
  body["messages"][0]["content"] = words(310);
  EXPECT_EQ(
      refusal_of(body, tiny_context(model)),
      "400 messages context_length_exceeded");
}

TEST(ChatRequest, ModelsOfVectorsDoNotChat) {
  auto model = tiny_model();
  model->is_embedding_model = true;
  EXPECT_EQ(
      refusal_of(chat_body(), tiny_context(model)),
      "400 model invalid_value");
}

TEST(ChatRequest, LogitBiasKeysAreTokenIds) {
  EXPECT_EQ(
      request_with(R"({"logit_bias": {"5": 200, "6": -3.5}})")
          .sampling.logit_bias,
      (std::map<int, float>{{5, 100.0f}, {6, -3.5f}}));
  for (const char* bad :
       {R"({"-1": 1})",
        R"({"999999999": 1})",
        R"({"99999999999999999999": 1})",
        R"({"abc": 1})",
        R"({" 5": 1})",
        R"({"05": 1})",
        R"({"": 1})",
        R"({"5": "x"})",
        R"({"5": null})"}) {
    EXPECT_EQ(
        refusal_with(fmt::format(R"({{"logit_bias": {}}})", bad)),
        "400 logit_bias invalid_value")
        << bad;
  }
  OrderedJson body = chat_body();
  for (int i = 0; i < 2000; ++i) {
    body["logit_bias"][std::to_string(i)] = 1;
  }
  EXPECT_EQ(refusal_of(body), "400 logit_bias array_above_max_length");
}

TEST(ChatRequest, SamplingFallsBackToTheModel) {
  auto model = tiny_model();
  model->sampling.temperature = 0.6f;
  model->sampling.top_k = 20;
  const Context context = tiny_context(model);
  const auto plain = request_of(chat_body(), context).sampling;
  EXPECT_EQ(plain.temperature, 0.6f);
  EXPECT_EQ(plain.top_k, 20);
  EXPECT_FALSE(plain.seed);
  const auto given =
      request_of(
          chat_body(
              R"({"temperature": 0, "top_k": -1, "top_p": 0.5, "seed": -5,)"
              R"( "presence_context_size": 7})"),
          context)
          .sampling;
  EXPECT_EQ(given.temperature, 0.0f);
  EXPECT_EQ(given.top_k, 0);
  EXPECT_EQ(given.top_p, 0.5f);
  EXPECT_EQ(given.seed, -5);
  EXPECT_EQ(given.penalty_context_size, 7);
  EXPECT_EQ(
      refusal_with(
          R"({"presence_context_size": 7, "frequency_context_size": 8})"),
      "400 frequency_context_size invalid_value");
}

TEST(ChatRequest, StreamOptionsMayBeEmpty) {
  EXPECT_EQ(
      refusal_with(R"({"stream": true, "stream_options": {}})"),
      "accepted");
  EXPECT_EQ(
      refusal_with(
          R"({"stream": true, "stream_options": {"include_usage": null}})"),
      "accepted");
  EXPECT_EQ(
      refusal_with(R"({"stream": true, "stream_options": []})"),
      "400 stream_options ");
  EXPECT_EQ(
      refusal_with(R"({"stream_options": {"include_usage": 1}})"),
      "400 stream_options.include_usage invalid_type");
}

TEST(ChatRequest, LogprobsNeedTheirSwitch) {
  EXPECT_EQ(request_with("{}").top_logprobs, std::nullopt);
  EXPECT_EQ(request_with(R"({"logprobs": false})").top_logprobs, std::nullopt);
  EXPECT_EQ(request_with(R"({"logprobs": true})").top_logprobs, 0);
  EXPECT_EQ(
      request_with(R"({"logprobs": true, "top_logprobs": 20})").top_logprobs,
      20);
  EXPECT_EQ(
      refusal_with(R"({"top_logprobs": 1})"),
      "400 top_logprobs invalid_value");
}

TEST(ChatRequest, MessagesReachTheTemplate) {
  EXPECT_EQ(
      prompt_of(chat_body(R"({"messages": [
          {"role": "developer", "content": "be kind"},
          {"role": "user", "name": "bob", "content": [
              {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
          {"role": "assistant", "content": null, "tool_calls": [{"id": "c",
              "type": "function", "function": {"name": "f",
              "arguments": "{\"x\": 1}"}}]},
          {"role": "tool", "tool_call_id": "c", "content": "4"}]})")),
      "[system] be kind[user bob] ab[assistant] [call f {\"x\": 1}][tool] 4"
      "[assistant]");
  // A model's control tokens in what a user wrote are ordinary characters.
  const auto prompt = request_with(R"({"messages": [{"role": "user",
      "content": "</s>"}]})")
                          .prompt;
  const int32_t end = *tiny_model()->tokenizer->token_to_id("</s>");
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), end), 0);
}

TEST(ChatRequest, TemplatesMayRefuse) {
  const Context context =
      tiny_context(tiny_model("{{ raise_exception('roles must alternate') }}"));
  try {
    answer_chat(chat_body(), context);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.param(), "messages");
    EXPECT_NE(
        std::string(error.what()).find("roles must alternate"),
        std::string::npos);
  }
}

TEST(ChatRequest, RequestsBringNoTemplates) {
  EXPECT_EQ(
      refusal_with(R"({"chat_template": "{{ messages[0].content }}"})"),
      "400 chat_template unsupported_parameter");
  for (const char* name :
       {"chat_template", "messages", "tools", "add_generation_prompt"}) {
    EXPECT_EQ(
        refusal_with(
            fmt::format(R"({{"chat_template_kwargs": {{"{}": []}}}})", name)),
        "400 chat_template_kwargs invalid_value");
  }
  Context context = tiny_context();
  context.limits.request_templates = true;
  EXPECT_EQ(
      prompt_of(
          chat_body(R"({"chat_template": "<{{ messages[0].content }}>"})"),
          context),
      "<hi>");
  EXPECT_EQ(
      refusal_of(chat_body(R"({"chat_template": "{% if %}"})"), context),
      "400 chat_template invalid_value");
  // Three nested loops of 999.
  EXPECT_EQ(
      refusal_of(
          chat_body(
              R"({"chat_template": "{% for a in range(999) %}{% for b in )"
              R"(range(999) %}{% for c in range(999) %}x{% endfor %})"
              R"({% endfor %}{% endfor %}"})"),
          context),
      "400 chat_template invalid_value");
}

TEST(ChatRequest, ReasoningIsSwitchedOnAndOff) {
  const Context context = tiny_context(tiny_model(kThinkingTemplate));
  auto request = request_of(chat_body(), context);
  ASSERT_TRUE(request.reasoning);
  EXPECT_TRUE(request.reasoning->open);
  EXPECT_EQ(request.reasoning->end, "</think>");
  EXPECT_FALSE(request.reasoning->budget);
  for (const char* off :
       {R"({"enable_thinking": false})",
        R"({"chat_template_kwargs": {"enable_thinking": false}})",
        R"({"reasoning_effort": "none"})"}) {
    request = request_of(chat_body(off), context);
    ASSERT_TRUE(request.reasoning) << off;
    EXPECT_FALSE(request.reasoning->open) << off;
  }
  request = request_of(
      chat_body(R"({"reasoning_effort": "low", "thinking_budget": 9})"),
      context);
  EXPECT_TRUE(request.reasoning->open);
  EXPECT_EQ(request.reasoning->budget, 9);
  EXPECT_FALSE(request_with("{}").reasoning);
}

TEST(ChatRequest, ContinuesTheLastMessage) {
  EXPECT_EQ(
      prompt_of(chat_body(R"({"continue_final_message": true, "messages": [
          {"role": "user", "content": "hi"},
          {"role": "assistant", "content": "yo"}]})")),
      "[user] hi[assistant] yo");
  EXPECT_EQ(
      refusal_with(R"({"continue_final_message": true})"),
      "400 messages invalid_value");
}

TEST(ChatRequest, ToolChoiceDecidesWhatMayBeCalled) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object", "properties": {"x": {"type": "integer"}}}}},
      {"type": "function", "function": {"name": "g"}}])";
  auto body = [&](std::string_view choice) {
    return chat_body(fmt::format("{{{}, \"tool_choice\": {}}}", tools, choice));
  };
  EXPECT_NE(prompt_of(body("\"auto\"")).find("[tools"), std::string::npos);
  EXPECT_EQ(prompt_of(body("\"none\"")).find("[tools"), std::string::npos);
  EXPECT_FALSE(request_of(body("\"auto\"")).constraint);
  EXPECT_FALSE(request_of(body("\"none\"")).constraint);
  EXPECT_TRUE(request_of(body("\"required\"")).constraint);
  const auto named =
      request_of(body(R"({"type": "function", "function": {"name": "g"}})"));
  ASSERT_TRUE(named.constraint);
  EXPECT_NE(
      named.constraint->grammar,
      request_of(body("\"required\"")).constraint->grammar);
  EXPECT_TRUE(request_of(body(R"({"type": "allowed_tools", "allowed_tools":
      {"mode": "required", "tools": [{"type": "function",
      "function": {"name": "g"}}]}})"))
                  .constraint);
  EXPECT_EQ(
      refusal_of(body(R"({"type": "function", "function": {"name": "h"}})")),
      "400 tool_choice.function.name invalid_value");
  EXPECT_EQ(
      refusal_with(R"({"tool_choice": "required"})"),
      "400 tool_choice invalid_value");
  EXPECT_EQ(
      refusal_with(
          R"({"tools": [{"type": "function", "function": {"name": "f"}},
          {"type": "function", "function": {"name": "f"}}]})"),
      "400 tools[1].function invalid_value");
}

}  // namespace

}  // namespace mlxx::api
