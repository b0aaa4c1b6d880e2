// Vectors and scores through the engine, beside those of the models alone.
#include "mlxx/engine/vectors.h"

#include <future>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/embed/embedding_model.h"
#include "mlxx/embed/reranker.h"
#include "mlxx/engine/engine.h"
#include "mlxx/engine/model_pool.h"
#include "tests/embed/tiny_encoder.h"
#include "tests/engine/tiny_model_folder.h"

namespace mlxx::engine {
namespace {

class Vectors : public ::testing::Test {
 protected:
  Vectors() {
    Json config = embed::tiny_bert_config();
    config["architectures"] = Json::array({"BertForSequenceClassification"});
    scores_.write("config.json", config.dump());
    write_tiny_model(answers_.path() / "chat");
    ModelListOptions models;
    models.models = {
        {"chat", answers_.path() / "chat"},
        {"embed", vectors_.path()},
        {"rerank", scores_.path()}};
    list = std::make_shared<ModelList>(std::move(models));
    ModelPoolOptions options;
    options.memory_budget = 0;
    options.kernels = models::selection(false);
    engine = std::make_unique<Engine>(EngineOptions{}, [this, options] {
      return std::make_unique<ModelPool>(list, options);
    });
  }

  embed::TinyEncoderFolder vectors_;
  embed::TinyEncoderFolder scores_;
  TemporaryFolder answers_;
  std::shared_ptr<ModelList> list;
  std::unique_ptr<Engine> engine;
};

std::vector<std::string> texts_of(int count) {
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    texts.push_back(i % 3 == 0 ? "the cat sat" : i % 3 == 1 ? "a dog" : "cat");
  }
  return texts;
}

void expect_rows(
    const mx::array& expected,
    const std::vector<std::vector<float>>& rows) {
  ASSERT_EQ(static_cast<size_t>(expected.shape(0)), rows.size());
  const float* from = expected.data<float>();
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), static_cast<size_t>(expected.shape(1)));
    EXPECT_TRUE(std::equal(row.begin(), row.end(), from));
    from += row.size();
  }
}

TEST_F(Vectors, AreTheModelsOwnInPartsOfAnySize) {
  const auto texts = texts_of(40);
  models::LoadOptions load;
  load.kernels = models::selection(false);
  auto model = embed::EmbeddingModel::load(vectors_.path(), load);
  auto expected = model->embed(texts);
  for (size_t at_once : {1, 7, 64}) {
    VectorLimits limits;
    limits.inputs_at_once = at_once;
    auto answer = embed_now(
        *engine,
        {.model = "embed", .texts = texts, .token_lists = {}},
        limits);
    expect_rows(expected.vectors, answer.vectors);
    EXPECT_EQ(answer.tokens, expected.tokens);
    EXPECT_EQ(answer.dropped.size(), texts.size());
  }
}

TEST_F(Vectors, OfTokensAreThoseOfTheirText) {
  auto text = list->text("embed");
  EXPECT_TRUE(text->is_embedding_model);
  auto ids = text->tokenizer->encode(
      "the cat sat",
      {.add_special_tokens = true, .parse_special = false});
  auto of_text =
      embed_now(*engine, {.model = "embed", .texts = {"the cat sat"}});
  auto of_ids =
      embed_now(*engine, {.model = "embed", .texts = {}, .token_lists = {ids}});
  EXPECT_EQ(of_text.vectors, of_ids.vectors);
  EXPECT_EQ(of_text.tokens, of_ids.tokens);
}

TEST_F(Vectors, ScoresAreTheModelsOwn) {
  const auto documents = texts_of(9);
  models::LoadOptions load;
  load.kernels = models::selection(false);
  auto model = embed::Reranker::load(scores_.path(), load);
  auto expected = model->score("cat", documents);
  VectorLimits limits;
  limits.inputs_at_once = 2;
  auto answer = rerank_now(
      *engine,
      {.model = "rerank", .query = "cat", .documents = documents},
      limits);
  ASSERT_EQ(answer.scores.size(), documents.size());
  for (size_t i = 0; i < documents.size(); ++i) {
    EXPECT_EQ(answer.scores[i], expected.values.data<float>()[i]);
  }
  EXPECT_EQ(answer.tokens, expected.tokens);
}

template <typename Call>
void expect_error(ErrorKind kind, const char* part, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << error.what() << ", not " << part;
  }
}

TEST_F(Vectors, RefuseWhatIsNoRequest) {
  constexpr auto kInvalid = ErrorKind::invalid_request;
  expect_error(kInvalid, "is empty", [&] {
    embed_now(*engine, {.model = "embed", .texts = {}});
  });
  EmbedRequest both;
  both.model = "embed";
  both.texts.push_back("a");
  both.token_lists.push_back({1});
  expect_error(kInvalid, "not both", [&] { embed_now(*engine, both); });
  VectorLimits limits;
  limits.max_inputs = 3;
  expect_error(kInvalid, "at most 3", [&] {
    embed_now(*engine, {.model = "embed", .texts = texts_of(4)}, limits);
  });
  limits = {};
  limits.max_bytes = 10;
  expect_error(kInvalid, "at most 10", [&] {
    rerank_now(
        *engine,
        {.model = "rerank", .query = "0123456789", .documents = {"x"}},
        limits);
  });
  expect_error(ErrorKind::not_found, "there is no model", [&] {
    embed_now(*engine, {.model = "none", .texts = {"a"}});
  });
  expect_error(kInvalid, "makes no vectors", [&] {
    embed_now(*engine, {.model = "chat", .texts = {"a"}});
  });
  expect_error(kInvalid, "scores no pairs", [&] {
    rerank_now(*engine, {.model = "embed", .query = "a", .documents = {"b"}});
  });
  expect_error(kInvalid, "dimensions", [&] {
    embed_now(
        *engine,
        {.model = "embed",
         .texts = {"a"},
         .token_lists = {},
         .dimensions = 65});
  });
  for (std::vector<int32_t> ids :
       {std::vector<int32_t>{-1}, {1 << 20}, {}, std::vector<int32_t>(49, 1)}) {
    expect_error(kInvalid, "text 0", [&] {
      embed_now(*engine, {.model = "embed", .texts = {}, .token_lists = {ids}});
    });
  }
}

TEST_F(Vectors, AnErrorNamesTheTextByItsNumberInTheRequest) {
  EmbedRequest request;
  request.model = "embed";
  request.token_lists.assign(30, {1, 2});
  request.token_lists[23] = {-5};
  VectorLimits limits;
  limits.inputs_at_once = 7;
  expect_error(ErrorKind::invalid_request, "[text 23] token id -5", [&] {
    embed_now(*engine, request, limits);
  });
}

TEST_F(Vectors, StopWhenTheClientIsGone) {
  int asked = 0;
  VectorLimits limits;
  limits.inputs_at_once = 1;
  EmbedRequest request{.model = "embed", .texts = texts_of(30)};
  request.is_wanted = [&] { return ++asked < 4; };
  expect_error(ErrorKind::cancelled, "went away", [&] {
    embed_now(*engine, request, limits);
  });
  EXPECT_EQ(asked, 4);
}

TEST_F(Vectors, DoNotHoldUpAnswers) {
  auto embedded = std::async(std::launch::async, [&] {
    VectorLimits limits;
    limits.inputs_at_once = 1;
    return embed_now(
        *engine,
        {.model = "embed", .texts = texts_of(300)},
        limits);
  });
  Request request;
  request.model = "chat";
  request.prompt = {'h', 'i'};
  request.max_tokens = 8;
  request.ignore_eos = true;
  auto done = std::make_shared<std::promise<Finish>>();
  auto future = done->get_future();
  engine->submit(request, [done](Event event) {
    if (event.finish) {
      done->set_value(*event.finish);
    }
  });
  Finish finish = future.get();
  EXPECT_EQ(finish.reason, FinishReason::length);
  EXPECT_EQ(finish.usage.completion_tokens, 8);
  EXPECT_EQ(embedded.get().vectors.size(), 300u);
}

TEST_F(Vectors, AnEngineThatEndsAnswersAll) {
  std::vector<std::future<bool>> futures;
  for (int i = 0; i < 20; ++i) {
    auto promise = std::make_shared<std::promise<bool>>();
    futures.push_back(promise->get_future());
    embed(
        *engine,
        {.model = "embed", .texts = texts_of(50)},
        [promise](EmbedAnswer answer, std::exception_ptr problem) {
          promise->set_value(problem || answer.vectors.size() == 50);
        });
  }
  engine.reset();
  for (auto& future : futures) {
    EXPECT_TRUE(future.get());
  }
}

}  // namespace
}  // namespace mlxx::engine
