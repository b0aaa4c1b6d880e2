#include <chrono>

#include <gtest/gtest.h>

#include "mlxx/api/errors.h"
#include "mlxx/api/vectors.h"
#include "tests/api/tiny_model.h"

namespace mlxx::api {

namespace {

OrderedJson parse(std::string_view text) {
  return OrderedJson::parse(text);
}

template <typename Read>
std::string refusal_of(Read read, std::string_view body) {
  try {
    read(parse(body), tiny_context(), engine::VectorLimits{});
    return "accepted";
  } catch (const std::exception& error) {
    const ErrorReply reply = describe_error(error);
    return fmt::format("{} {}", reply.status, reply.param);
  }
}

TEST(Embeddings, InputsOfAllFourKinds) {
  const Context context = tiny_context();
  auto read = [&](std::string_view body) {
    return read_embedding(parse(body), context).request;
  };
  EXPECT_EQ(read(R"({"input": "ab"})").texts, std::vector<std::string>{"ab"});
  EXPECT_EQ(
      read(R"({"input": ["a", "b"]})").texts,
      (std::vector<std::string>{"a", "b"}));
  using Ids = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(read(R"({"input": [1, 2]})").token_lists, (Ids{{1, 2}}));
  EXPECT_EQ(
      read(R"({"input": [[1, 2], [3]]})").token_lists,
      (Ids{{1, 2}, {3}}));
  EXPECT_EQ(read(R"({"input": "a", "dimensions": 7})").dimensions, 7);
  EXPECT_EQ(read(R"({"input": "a", "model": "other"})").model, "tiny");
}

TEST(Embeddings, WrongInputsAreNamed) {
  auto refused = [](std::string_view body) {
    return refusal_of(read_embedding, body);
  };
  EXPECT_EQ(refused("{}"), "400 input");
  EXPECT_EQ(refused(R"({"input": []})"), "400 input");
  EXPECT_EQ(refused(R"({"input": ""})"), "400 input");
  EXPECT_EQ(refused(R"({"input": [""]})"), "400 input[0]");
  EXPECT_EQ(refused(R"({"input": [[]]})"), "400 input[0]");
  EXPECT_EQ(refused(R"({"input": ["a", null]})"), "400 input[1]");
  EXPECT_EQ(refused(R"({"input": {}})"), "400 input");
  EXPECT_EQ(refused(R"({"input": "a", "dimensions": 1e9})"), "400 dimensions");
  EXPECT_EQ(
      refused(R"({"input": "a", "encoding_format": "hex"})"),
      "400 encoding_format");
  const OrderedJson many = {{"input", std::vector<std::string>(5000, "x")}};
  EXPECT_EQ(refused(many.dump()), "400 input");
}

TEST(Embeddings, BothFormsHoldTheSameNumbers) {
  engine::EmbedAnswer answer;
  answer.vectors = {{1.0f, -0.5f, 0.1f}, {0.0f, 3e-20f, -1.0f}};
  answer.tokens = 9;
  EmbeddingCall call;
  call.request.model = "tiny";
  const OrderedJson floats = parse(embedding_body(call, answer));
  EXPECT_EQ(floats["object"], "list");
  EXPECT_EQ(floats["model"], "tiny");
  EXPECT_EQ(floats["usage"]["prompt_tokens"], 9);
  EXPECT_EQ(floats["usage"]["total_tokens"], 9);
  ASSERT_EQ(floats["data"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(floats["data"][i]["index"], i);
    EXPECT_EQ(floats["data"][i]["object"], "embedding");
    EXPECT_EQ(
        floats["data"][i]["embedding"].get<std::vector<float>>(),
        answer.vectors[i]);
  }
  call.base64 = true;
  const OrderedJson text = parse(embedding_body(call, answer));
  // struct.pack("<3f", 1, -0.5, 0.1) in base64
  EXPECT_EQ(text["data"][0]["embedding"], "AACAPwAAAL/NzMw9");
  EXPECT_EQ(base64_floats({1.0f}), "AACAPw==");
  EXPECT_EQ(base64_floats({1.0f, 1.0f}), "AACAPwAAgD8=");
  EXPECT_EQ(base64_floats({}), "");
}

TEST(Embeddings, NothingIsCutUnasked) {
  engine::EmbedAnswer answer;
  answer.vectors = {{1.0f}, {1.0f}};
  answer.dropped = {0, 88};
  EmbeddingCall call;
  try {
    embedding_body(call, answer);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.param(), "input[1]");
    EXPECT_EQ(error.code(), "context_length_exceeded");
  }
  call.truncate = true;
  EXPECT_EQ(parse(embedding_body(call, answer))["data"].size(), 2u);
}

TEST(Embeddings, TextsManyTimesTheContextAreNotReadWhole) {
  const Context context = tiny_context();
  OrderedJson body = {{"input", {"a", std::string(8 << 20, 'x')}}};
  const auto start = std::chrono::steady_clock::now();
  try {
    read_embedding(body, context, engine::VectorLimits{});
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.param(), "input[1]");
    EXPECT_EQ(error.code(), "context_length_exceeded");
  }
  body["truncate"] = true;
  const auto texts =
      read_embedding(body, context, engine::VectorLimits{}).request.texts;
  EXPECT_EQ(texts.at(0), "a");
  EXPECT_GT(texts.at(1).size(), 4096u);
  EXPECT_LT(texts.at(1).size(), size_t{1} << 20);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  OrderedJson pairs = {
      {"query", "q"},
      {"documents", OrderedJson::array({"a", body["input"][1]})}};
  try {
    read_rerank(pairs, context, engine::VectorLimits{});
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.param(), "documents[1]");
  }
  // What is returned is returned whole, but not read so.
  pairs["truncate"] = true;
  pairs["return_documents"] = true;
  const RerankCall call = read_rerank(pairs, context, engine::VectorLimits{});
  EXPECT_LT(call.request.documents.at(1).size(), size_t{1} << 20);
  engine::RerankAnswer answer;
  answer.scores = {0.25f, 0.5f};
  const OrderedJson out = parse(rerank_body(call, answer));
  EXPECT_EQ(out["results"][0]["document"]["text"], body["input"][1]);
}

TEST(Rerank, BestFirst) {
  const RerankCall call = read_rerank(
      parse(R"({"query": "q", "documents": ["a", {"text": "b"}, "c"],
      "top_n": 2, "return_documents": true})"),
      tiny_context());
  EXPECT_EQ(call.request.documents, (std::vector<std::string>{"a", "b", "c"}));
  engine::RerankAnswer answer;
  answer.scores = {0.25f, 0.5f, 0.5f};
  const OrderedJson out = parse(rerank_body(call, answer));
  ASSERT_EQ(out["results"].size(), 2u);
  EXPECT_EQ(out["results"][0]["index"], 1);
  EXPECT_EQ(out["results"][1]["index"], 2);
  EXPECT_EQ(out["results"][0]["relevance_score"], 0.5);
  EXPECT_EQ(out["results"][0]["document"]["text"], "b");
}

TEST(Rerank, WrongBodiesAreNamed) {
  auto refused = [](std::string_view body) {
    return refusal_of(read_rerank, body);
  };
  EXPECT_EQ(refused(R"({"documents": ["a"]})"), "400 query");
  EXPECT_EQ(refused(R"({"query": "", "documents": ["a"]})"), "400 query");
  EXPECT_EQ(refused(R"({"query": "a"})"), "400 documents");
  EXPECT_EQ(refused(R"({"query": "a", "documents": [5]})"), "400 documents");
  EXPECT_EQ(refused(R"({"query": "a", "documents": [""]})"), "400 documents");
  EXPECT_EQ(
      refused(R"({"query": "a", "documents": [{"txt": "x"}]})"),
      "400 documents");
}

}  // namespace

}  // namespace mlxx::api
