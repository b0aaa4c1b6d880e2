#include "mlxx/engine/model_pool.h"

#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/core/memory.h"
#include "mlxx/engine/model_runner.h"
#include "tests/engine/tiny_model_folder.h"

namespace mlxx::engine {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

size_t resident_bytes() {
  size_t total = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

Json long_context(int layers, int width) {
  Json config = tiny_llama_config(layers, width);
  config["max_position_embeddings"] = 100000;
  return config;
}

// Two models of about 7 MB, and one of 21.
class Pool : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_tiny_model(folder_->path() / "a", long_context(4, 256));
    write_tiny_model(folder_->path() / "b", long_context(4, 256));
    write_tiny_model(folder_->path() / "big", long_context(12, 256));
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  ModelPool& make(size_t budget) {
    options.memory_budget = budget;
    ModelListOptions models;
    for (const char* name : {"a", "b", "big"}) {
      models.models.push_back({name, folder_->path() / name});
    }
    list = std::make_shared<ModelList>(std::move(models));
    pool = std::make_unique<ModelPool>(list, options);
    return *pool;
  }
  // Active memory of earlier tests is no matter of this one.
  void SetUp() override {
    base_ = mx::get_active_memory();
    options.active_memory = [this] {
      size_t active = mx::get_active_memory();
      return active - std::min(active, base_);
    };
    options.now = [this] { return time; };
  }

  static Request request(int prompt, int max_tokens, int n = 1) {
    Request request;
    request.prompt.assign(static_cast<size_t>(prompt), 'a');
    request.max_tokens = max_tokens;
    request.n = n;
    return request;
  }
  size_t weights_of(const char* name) {
    pool->runner(name);
    return pool->stats().weights;
  }

  static TemporaryFolder* folder_;
  size_t base_ = 0;
  std::chrono::steady_clock::time_point time{std::chrono::hours(1)};
  ModelPoolOptions options;
  std::shared_ptr<ModelList> list;
  std::unique_ptr<ModelPool> pool;
};

TemporaryFolder* Pool::folder_ = nullptr;

std::string error_of(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST_F(Pool, LoadsWhenAskedAndKeeps) {
  make(0);
  EXPECT_EQ(pool->stats().loaded, 0);
  auto runner = pool->runner("b");
  EXPECT_EQ(runner->text(), list->text("b"));
  EXPECT_EQ(pool->runner("b"), runner);
  EXPECT_EQ(pool->runner("")->text()->name, "a");
  EXPECT_EQ(pool->stats().loads, 2u);
  EXPECT_TRUE(list->list()[0].loaded);
  EXPECT_FALSE(list->list()[2].loaded);
}

TEST_F(Pool, UnknownNamesAndPathsAreNotFound) {
  make(0);
  for (const std::string& name :
       {std::string("c"),
        (folder_->path() / "a").string(),
        std::string("smollm2")}) {
    error_of([&] { pool->runner(name); }, ErrorKind::not_found);
  }
}

TEST_F(Pool, UnloadsTheLeastRecentlyUsedForAnother) {
  make(0);
  const size_t one = weights_of("a");
  make(one * 21 / 10);
  pool->runner("a");
  pool->runner("b");
  EXPECT_EQ(pool->stats().loaded, 2);
  time += std::chrono::seconds(1);
  pool->runner("a");
  // Of the two only the larger one's room would do, so both go.
  EXPECT_NE(
      error_of([&] { pool->runner("big"); }, ErrorKind::out_of_memory)
          .find("[memory_admission]"),
      std::string::npos);
  make(one * 4);
  pool->runner("a");
  time += std::chrono::seconds(1);
  pool->runner("b");
  time += std::chrono::seconds(1);
  pool->runner("a");
  pool->runner("big");
  EXPECT_FALSE(list->list()[1].loaded);
  EXPECT_TRUE(list->list()[2].loaded);
}

TEST_F(Pool, AHeldModelStays) {
  make(0);
  const size_t one = weights_of("a");
  make(one * 3 / 2);
  auto held = pool->runner("a");
  const auto what =
      error_of([&] { pool->runner("b"); }, ErrorKind::out_of_memory);
  EXPECT_EQ(what.find("[models]"), 0u) << what;
  EXPECT_TRUE(list->list()[0].loaded);
  held.reset();
  EXPECT_EQ(pool->runner("b")->text()->name, "b");
  EXPECT_FALSE(list->list()[0].loaded);
}

TEST_F(Pool, SwappingModelsEndsWhereItBegan) {
  make(0);
  const size_t one = weights_of("big");
  make(one * 4 / 3);
  pool->runner("big");
  const size_t active = mx::get_active_memory();
  const size_t resident = resident_bytes();
  for (const char* name : {"a", "big", "b", "big"}) {
    if (std::string(name) != "big") {
      pool->unload_idle();
    }
    pool->runner(name);
  }
  EXPECT_LE(mx::get_active_memory(), active + kMegabyte);
  EXPECT_LE(resident_bytes(), resident + 12 * kMegabyte);
  pool->unload_idle();
  EXPECT_LE(mx::get_active_memory(), active - one + kMegabyte);
  EXPECT_LE(resident_bytes(), resident - one / 2);
}

TEST_F(Pool, UnloadsWhatIsIdle) {
  options.idle_unload = std::chrono::seconds(60);
  make(0);
  auto held = pool->runner("a");
  pool->runner("b");
  time += std::chrono::seconds(59);
  pool->tick();
  EXPECT_EQ(pool->stats().loaded, 2);
  time += std::chrono::seconds(2);
  pool->tick();
  EXPECT_TRUE(list->list()[0].loaded);
  EXPECT_FALSE(list->list()[1].loaded);
  held.reset();
  time += std::chrono::seconds(61);
  pool->tick();
  EXPECT_EQ(pool->stats().loaded, 0);
  EXPECT_EQ(pool->stats().unloads, 2u);
}

TEST_F(Pool, SaysWithAllNumbersWhatNeverFits) {
  make(0);
  const size_t one = weights_of("a");
  make(one + 8 * kMegabyte);
  auto runner = pool->runner("a");
  int last = 0;
  std::string what;
  for (int prompt = 100; prompt < 100000 && what.empty(); prompt *= 2) {
    try {
      EXPECT_TRUE(pool->admit(*runner, request(prompt, 10), true));
      last = prompt;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
      what = error.what();
    }
  }
  EXPECT_GE(last, 400);
  EXPECT_EQ(what.find("[memory_admission]"), 0u) << what;
  for (const std::string& number :
       {std::to_string(last * 2),
        std::to_string(one + 8 * kMegabyte),
        std::to_string(pool->stats().weights)}) {
    EXPECT_NE(what.find(number), what.npos) << number << " in " << what;
  }
  // Also when others run.
  auto lease = pool->admit(*runner, request(100, 10), false);
  error_of(
      [&] { pool->admit(*runner, request(last * 2, 10), false); },
      ErrorKind::out_of_memory);
  EXPECT_TRUE(pool->admit(*runner, request(100, 10), false));
}

TEST_F(Pool, RecoversFromABurst) {
  make(0);
  const size_t one = weights_of("a");
  make(one + 24 * kMegabyte);
  auto runner = pool->runner("a");
  std::vector<std::unique_ptr<Lease>> running;
  std::unique_ptr<Lease> next;
  const Request large = request(1500, 200);
  do {
    next = pool->admit(*runner, large, running.empty());
    if (next) {
      running.push_back(std::move(next));
    }
    ASSERT_LT(running.size(), 100u);
  } while (running.size() < 100 && pool->admit(*runner, large, false));
  EXPECT_GE(running.size(), 2u);
  EXPECT_LE(
      pool->stats().rows + pool->stats().weights,
      pool->stats().memory_budget);
  // It would fit and has to wait.
  EXPECT_EQ(pool->admit(*runner, large, false), nullptr);
  running.clear();
  EXPECT_EQ(pool->stats().rows, 0u);
  // What a burst leaves behind, in prefixes and in MLX's pool, is no obstacle.
  for (int i = 0; i < 8; ++i) {
    Request other = large;
    other.prompt.assign(1500, 'b' + i);
    auto lease = pool->admit(*runner, other, true);
    ASSERT_TRUE(lease) << i;
    RowSettings settings;
    auto opened = runner->open(other.prompt, settings);
    while (runner->prefill(*opened.row, 512) > 0) {
    }
    runner->close(std::move(opened.row), other.prompt);
  }
  EXPECT_GT(pool->prefixes().stats().bytes, kMegabyte);
  EXPECT_TRUE(pool->admit(*runner, request(3, 3), true));
  EXPECT_TRUE(pool->admit(*runner, large, true));
}

TEST_F(Pool, PrefixesGoBeforeModels) {
  make(0);
  const size_t one = weights_of("a");
  make(2 * one + 24 * kMegabyte);
  auto runner = pool->runner("a");
  pool->runner("b");
  Request kept = request(2000, 10);
  auto opened = runner->open(kept.prompt, RowSettings{});
  while (runner->prefill(*opened.row, 512) > 0) {
  }
  runner->close(std::move(opened.row), kept.prompt);
  const size_t bytes = pool->prefixes().stats().bytes;
  ASSERT_GT(bytes, kMegabyte);
  // Fill the rest, so that only what prefixes hold can be got back.
  std::vector<std::unique_ptr<Lease>> running;
  while (pool->prefixes().stats().bytes == bytes) {
    running.push_back(pool->admit(*runner, request(400, 10), false));
    ASSERT_TRUE(running.back());
    ASSERT_LT(running.size(), 1000u);
  }
  EXPECT_EQ(pool->stats().loaded, 2);
  while (pool->stats().loaded == 2) {
    running.push_back(pool->admit(*runner, request(400, 10), false));
    ASSERT_TRUE(running.back());
    ASSERT_LT(running.size(), 1000u);
  }
  EXPECT_EQ(pool->prefixes().stats().bytes, 0u);
  EXPECT_FALSE(list->list()[1].loaded);
}

TEST_F(Pool, ChoicesShareTheirPrompt) {
  make(0);
  auto runner = pool->runner("a");
  auto one = pool->admit(*runner, request(1000, 10), true);
  const size_t bytes = pool->stats().rows;
  auto three = pool->admit(*runner, request(1000, 10, 3), true);
  const size_t more = pool->stats().rows - bytes;
  EXPECT_GT(more, bytes);
  EXPECT_LT(more, 2 * bytes);
}

TEST_F(Pool, WhatCannotBeLoadedIsFoundWithoutLoadingIt) {
  TemporaryFolder damaged;
  write_tiny_model(damaged.path() / "cut");
  std::filesystem::resize_file(damaged.path() / "cut/model.safetensors", 1000);
  write_tiny_model(damaged.path() / "strange");
  std::ofstream(damaged.path() / "strange/config.json")
      << R"({"model_type":"none_such"})";
  ModelListOptions models;
  for (const char* name : {"cut", "strange"}) {
    models.models.push_back({name, damaged.path() / name});
  }
  models.models.push_back({"a", folder_->path() / "a"});
  options.memory_budget = size_t{64} << 20;
  pool = std::make_unique<ModelPool>(
      std::make_shared<ModelList>(std::move(models)),
      options);
  EXPECT_THROW(pool->check("cut"), Error);
  EXPECT_THROW(pool->check("strange"), Error);
  pool->check("a");
  EXPECT_EQ(pool->stats().loaded, 0);
  make(size_t{10} << 20);
  EXPECT_THROW(pool->check("big"), Error);
}

TEST_F(Pool, ADamagedModelIsAnErrorAndNoMore) {
  write_tiny_model(folder_->path() / "cut", long_context(2, 128));
  std::filesystem::resize_file(
      folder_->path() / "cut" / "model.safetensors",
      5000);
  ModelListOptions models;
  models.models = {
      {"a", folder_->path() / "a"},
      {"cut", folder_->path() / "cut"}};
  list = std::make_shared<ModelList>(std::move(models));
  ModelPool other(list, options);
  error_of([&] { other.runner("cut"); }, ErrorKind::bad_file);
  EXPECT_EQ(other.stats().weights, 0u);
  EXPECT_TRUE(other.runner("a"));
}

}  // namespace
}  // namespace mlxx::engine
