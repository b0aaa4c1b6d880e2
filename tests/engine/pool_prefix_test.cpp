// Kept states of the models of a pool: unloaded with them, on disk over a
// restart, forgotten when that is asked for.
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "mlxx/engine/engine.h"
#include "mlxx/engine/model_pool.h"
#include "tests/engine/runner_driver.h"
#include "tests/engine/tiny_model_folder.h"

namespace mlxx::engine {
namespace {

class PoolPrefix : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(folder_.path() / "a");
    write_tiny_model(folder_.path() / "b", tiny_llama_config(3));
    options_.memory_budget = 0;
    options_.prefixes.folder = folder_.path() / "prompts";
  }
  std::unique_ptr<ModelPool> start() {
    ModelListOptions models;
    for (const char* name : {"a", "b"}) {
      models.models.push_back({name, folder_.path() / name});
    }
    return std::make_unique<ModelPool>(
        std::make_shared<ModelList>(std::move(models)),
        options_);
  }
  static DrivenAnswer answer(ModelPool& pool, const char* model) {
    DrivenRequest request;
    request.prompt.assign(200, 'a');
    request.tokens = 5;
    return RunnerDriver(*pool.runner(model)).run({request})[0];
  }

  TemporaryFolder folder_;
  ModelPoolOptions options_;
};

TEST_F(PoolPrefix, ServeTheNextPoolUntilTheyAreForgotten) {
  DrivenAnswer first;
  {
    auto pool = start();
    first = answer(*pool, "a");
    EXPECT_EQ(first.cached, 0);
    EXPECT_EQ(answer(*pool, "a").cached, 199);
    EXPECT_EQ(answer(*pool, "b").cached, 0);  // another model's
    SourceStats stats = pool->source_stats();
    EXPECT_EQ(stats.loaded_models.size(), 2u);
    EXPECT_GT(stats.prefixes.bytes, 0u);
    EXPECT_EQ(stats.prefixes.hits, 1u);
    EXPECT_GT(stats.weights, 0u);
    EXPECT_GE(stats.active_memory, stats.prefixes.bytes);
  }
  auto pool = start();
  DrivenAnswer second = answer(*pool, "a");
  EXPECT_EQ(second.cached, 192);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(second.tokens[i].token, first.tokens[i].token);
  }
  EXPECT_EQ(answer(*pool, "b").cached, 192);
  EXPECT_EQ(pool->source_stats().prefixes.disk_hits, 2u);
  pool->clear_prefixes();
  SourceStats stats = pool->source_stats();
  EXPECT_EQ(stats.prefixes.bytes, 0u);
  EXPECT_EQ(stats.prefixes.entries, 0u);
  EXPECT_EQ(stats.prefixes.disk_files, 0u);
  EXPECT_EQ(answer(*pool, "a").cached, 0);
}

TEST_F(PoolPrefix, GoWithTheirModelAndComeBackWithIt) {
  auto pool = start();
  answer(*pool, "a");
  EXPECT_EQ(pool->unload_idle(), 1);
  EXPECT_EQ(pool->source_stats().prefixes.bytes, 0u);
  pool->prefixes().flush();
  EXPECT_EQ(answer(*pool, "a").cached, 192);
  // Other weights under the same name are another model.
  pool.reset();
  write_tiny_model(folder_.path() / "a", tiny_llama_config(2));
  EXPECT_EQ(answer(*start(), "a").cached, 0);
}

TEST_F(PoolPrefix, AreForgottenBetweenTwoStepsOfAnEngine) {
  Engine engine({}, [this] { return start(); });
  EXPECT_EQ(engine.stats().source.loaded_models.size(), 0u);
  std::promise<void> cleared;
  engine.post([&](ModelSource& source) {
    answer(static_cast<ModelPool&>(source), "a");
    EXPECT_GT(source.source_stats().prefixes.bytes, 0u);
    source.clear_prefixes();
    cleared.set_value();
  });
  cleared.get_future().get();
  // Published after the work, at the latest when there is none.
  for (int i = 0; i < 3000 && engine.stats().source.loaded_models.empty();
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(engine.stats().source.loaded_models.size(), 1u);
  EXPECT_EQ(engine.stats().source.prefixes.bytes, 0u);
}

}  // namespace
}  // namespace mlxx::engine
