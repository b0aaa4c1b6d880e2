// Requests of growing length against a small budget, through the engine.
#include <future>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/core/memory.h"
#include "mlxx/engine/engine.h"
#include "mlxx/engine/model_pool.h"
#include "tests/engine/tiny_model_folder.h"

namespace mlxx::engine {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

class Admission : public ::testing::Test {
 protected:
  void start(size_t budget) {
    Json config = tiny_llama_config(4, 256);
    config["max_position_embeddings"] = 100000;
    for (const char* name : {"a", "b"}) {
      write_tiny_model(folder.path() / name, config);
    }
    ModelListOptions models;
    models.models = {{"a", folder.path() / "a"}, {"b", folder.path() / "b"}};
    list = std::make_shared<ModelList>(std::move(models));
    ModelPoolOptions options;
    options.memory_budget = budget;
    engine = std::make_unique<Engine>(EngineOptions{}, [this, options] {
      return std::make_unique<ModelPool>(list, options);
    });
  }
  std::future<Finish> submit(int prompt, const char* model = "a") {
    Request request;
    request.model = model;
    for (int i = 0; i < prompt; ++i) {
      request.prompt.push_back('a' + i % 20);
    }
    request.max_tokens = 4;
    request.ignore_eos = true;
    auto done = std::make_shared<std::promise<Finish>>();
    auto future = done->get_future();
    engine->submit(request, [done](Event event) {
      if (event.finish) {
        done->set_value(*event.finish);
      }
    });
    return future;
  }

  TemporaryFolder folder;
  std::shared_ptr<ModelList> list;
  std::unique_ptr<Engine> engine;
};

TEST_F(Admission, AnswersUntilTheLimitThenRefusesThenAnswersAgain) {
  start(mx::get_active_memory() + 24 * kMegabyte);
  int answered = 0;
  std::string refused;
  for (int prompt = 64; refused.empty() && prompt < 60000; prompt *= 2) {
    Finish finish = submit(prompt).get();
    if (finish.error) {
      EXPECT_EQ(finish.error->kind(), ErrorKind::out_of_memory);
      refused = finish.error->what();
    } else {
      EXPECT_EQ(finish.reason, FinishReason::length);
      answered = prompt;
    }
  }
  EXPECT_GE(answered, 256);
  EXPECT_EQ(refused.find("[memory_admission]"), 0u) << refused;
  EXPECT_NE(refused.find(std::to_string(answered * 2)), refused.npos);
  EXPECT_EQ(submit(10).get().reason, FinishReason::length);
  EXPECT_TRUE(engine->stats().healthy);
}

TEST_F(Admission, ABurstToTheLimitIsAnsweredOneAfterTheOther) {
  start(mx::get_active_memory() + 24 * kMegabyte);
  ASSERT_EQ(submit(800).get().reason, FinishReason::length);
  std::vector<std::future<Finish>> burst;
  for (int i = 0; i < 8; ++i) {
    burst.push_back(submit(800));
  }
  for (auto& future : burst) {
    EXPECT_EQ(future.get().reason, FinishReason::length);
  }
  auto start_time = std::chrono::steady_clock::now();
  EXPECT_EQ(submit(3).get().reason, FinishReason::length);
  EXPECT_LT(
      std::chrono::steady_clock::now() - start_time,
      std::chrono::seconds(10));
}

TEST_F(Admission, TwoModelsTakeTurnsWhereOneFits) {
  start(mx::get_active_memory() + 20 * kMegabyte);
  std::vector<std::future<Finish>> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(submit(20, i % 2 == 0 ? "a" : "b"));
  }
  for (auto& future : all) {
    Finish finish = future.get();
    EXPECT_EQ(finish.reason, FinishReason::length)
        << (finish.error ? finish.error->what() : "");
  }
  const auto models = list->list();
  EXPECT_NE(models[0].loaded, models[1].loaded);
}

TEST_F(Admission, AModelAboveTheBudgetIsRefusedAndTheEngineGoesOn) {
  start(mx::get_active_memory() + kMegabyte);
  Finish finish = submit(10).get();
  ASSERT_TRUE(finish.error);
  EXPECT_EQ(finish.error->kind(), ErrorKind::out_of_memory);
  EXPECT_NE(
      std::string(finish.error->what()).find("[memory_admission] the weights"),
      std::string::npos)
      << finish.error->what();
  EXPECT_TRUE(engine->stats().healthy);
}

}  // namespace
}  // namespace mlxx::engine
