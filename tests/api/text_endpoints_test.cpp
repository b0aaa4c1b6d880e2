#include <gtest/gtest.h>

#include "mlxx/api/chat_request.h"
#include "mlxx/api/errors.h"
#include "mlxx/api/json_writer.h"
#include "mlxx/api/model_list.h"
#include "mlxx/api/tokenize.h"
#include "tests/api/tiny_model.h"

namespace mlxx::api {

namespace {

OrderedJson parse(std::string_view text) {
  return OrderedJson::parse(text);
}

TEST(Tokenize, ThereAndBack) {
  const Context context = tiny_context();
  std::vector<std::string> ignored;
  const OrderedJson out = parse(
      tokenize(parse(R"({"content": "h\u00e9llo</s>"})"), context, ignored));
  EXPECT_EQ(out["count"], out["tokens"].size());
  EXPECT_EQ(out["max_model_len"], 4096);
  const OrderedJson back = {{"tokens", out["tokens"]}};
  EXPECT_EQ(
      parse(detokenize(back, context, ignored))["content"],
      "h\u00e9llo</s>");
}

TEST(Tokenize, TextsAreLimited) {
  const Context context = tiny_context();
  std::vector<std::string> ignored;
  for (const char* name : {"content", "prompt"}) {
    const OrderedJson body = {{name, std::string((1 << 20) + 1, 'x')}};
    try {
      tokenize(body, context, ignored);
      FAIL();
    } catch (const RequestError& error) {
      EXPECT_EQ(error.status(), 400);
      EXPECT_EQ(error.param(), name);
    }
  }
}

TEST(Tokenize, SpecialTokensAsAskedFor) {
  const Context context = tiny_context();
  std::vector<std::string> ignored;
  auto count = [&](std::string_view body) {
    return parse(tokenize(parse(body), context, ignored))["count"].get<int>();
  };
  EXPECT_EQ(count(R"({"content": "</s>"})"), 1);
  EXPECT_EQ(count(R"({"content": "</s>", "parse_special": false})"), 4);
  const OrderedJson pieces = parse(tokenize(
      parse(R"({"content": "\u00e9", "with_pieces": true})"),
      context,
      ignored));
  ASSERT_EQ(pieces["count"], 2);
  EXPECT_EQ(pieces["tokens"][0]["piece"], OrderedJson::array({0xc3}));
}

TEST(ApplyTemplate, ShowsThePrompt) {
  EXPECT_EQ(
      parse(apply_template(
          parse(R"({"messages": [{"role": "user", "content": "hi"}]})"),
          tiny_context()))["prompt"],
      "[user] hi[assistant]");
}

TEST(ModelList, ListsAndFinds) {
  const std::vector<engine::ListedModel> models = {
      {"a/b", 1700000000, true},
      {"c", 0, false}};
  const OrderedJson list = parse(model_list_body(models));
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "a/b");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(parse(model_body(models, "a/b"))["created"], 1700000000);
  try {
    model_body(models, "../etc\n\xff");
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), 404);
    EXPECT_EQ(error.code(), "model_not_found");
  }
}

TEST(ModelList, NamesInBodies) {
  EXPECT_EQ(requested_model(parse("{}")), "");
  EXPECT_EQ(requested_model(parse(R"({"model": null})")), "");
  EXPECT_EQ(requested_model(parse(R"({"model": "default_model"})")), "");
  EXPECT_EQ(requested_model(parse(R"({"model": "x"})")), "x");
  for (const char* bad :
       {"5", "[]", "\"x\"", R"({"model": 5})", R"({"model": "a\u0000b"})"}) {
    EXPECT_THROW(requested_model(parse(bad)), RequestError) << bad;
  }
  const OrderedJson long_name = {{"model", std::string(1 << 20, 'x')}};
  EXPECT_THROW(requested_model(long_name), RequestError);
}

ErrorReply reply_to(ErrorKind kind, std::string_view message) {
  return describe_error(Error(kind, message));
}

TEST(Errors, KindsHaveTheirStatus) {
  EXPECT_EQ(reply_to(ErrorKind::invalid_request, "[x] y").status, 400);
  EXPECT_EQ(reply_to(ErrorKind::invalid_request, "[x] y").param, "x");
  EXPECT_EQ(
      reply_to(ErrorKind::invalid_request, "[x] y").type,
      "invalid_request_error");
  EXPECT_EQ(reply_to(ErrorKind::not_found, "[model] y").status, 404);
  EXPECT_EQ(
      reply_to(ErrorKind::not_found, "[model] y").code,
      "model_not_found");
  EXPECT_EQ(reply_to(ErrorKind::not_found, "[adapter] y").param, "adapters");
  EXPECT_EQ(reply_to(ErrorKind::invalid_request, "[a b] y").param, "");
  EXPECT_EQ(reply_to(ErrorKind::unsupported, "[x] y").status, 501);
  EXPECT_EQ(reply_to(ErrorKind::internal, "[x] y").status, 500);
  EXPECT_EQ(reply_to(ErrorKind::bad_file, "[x] y").type, "server_error");
  EXPECT_EQ(reply_to(ErrorKind::cancelled, "[x] y").status, 499);
  const auto memory = reply_to(ErrorKind::out_of_memory, "[x] y");
  EXPECT_EQ(memory.status, 503);
  EXPECT_GT(memory.retry_after_seconds, 0);
  const auto admission =
      reply_to(ErrorKind::out_of_memory, "[memory_admission] 9 GB of 8");
  EXPECT_EQ(admission.status, 400);
  EXPECT_EQ(admission.type, "memory_admission");
  EXPECT_EQ(admission.code, "context_over_budget");
  EXPECT_EQ(describe_error(std::runtime_error("x")).status, 500);
}

TEST(Errors, FoldersAreNotTold) {
  const auto missing = reply_to(
      ErrorKind::bad_file,
      "[/home/ada/models/a/config.json] cannot open");
  EXPECT_EQ(missing.message, "[config.json] cannot open");
  EXPECT_EQ(missing.status, 500);
  EXPECT_EQ(missing.param, "");
  EXPECT_EQ(reply_to(ErrorKind::bad_file, "[a/b] c").message, "[a/b] c");
  EXPECT_EQ(reply_to(ErrorKind::bad_file, "[/a/] c").message, "[] c");
}

TEST(Errors, BusyTellsWhenToComeBack) {
  const auto full = describe_error(engine::Busy("[engine] full", 7, true));
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.type, "rate_limit_error");
  EXPECT_EQ(full.retry_after_seconds, 7);
  EXPECT_EQ(
      describe_error(engine::Busy("[engine] stops", 3, false)).status,
      503);
}

TEST(Errors, BadBytesNeverLeave) {
  const std::string message =
      std::string("[x] found \xff\xfe\r\n\x01") + std::string(100000, 'x');
  const std::string body = openai_error_body(
      describe_error(RequestError(400, message, "a\xff", "c")));
  EXPECT_LT(body.size(), 6000u);
  const OrderedJson error = parse(body)["error"];
  EXPECT_EQ(error["code"], "c");
  EXPECT_EQ(error["param"], "a\ufffd");
  EXPECT_EQ(error["message"].get<std::string>().find('\n'), std::string::npos);
  EXPECT_TRUE(parse(openai_error_body(
      reply_to(ErrorKind::internal, "no place")))["error"]["param"]
                  .is_null());
}

TEST(JsonWriter, ReplacesWhatIsNoText) {
  EXPECT_EQ(write_json({{"a", "x\xff"}}), "{\"a\":\"x\ufffd\"}");
  EXPECT_EQ(sse_frame({{"a", 1}}), "data: {\"a\":1}\n\n");
  EXPECT_EQ(sse_frame({{"a", 1}}, "ping"), "event: ping\ndata: {\"a\":1}\n\n");
}

}  // namespace

}  // namespace mlxx::api
