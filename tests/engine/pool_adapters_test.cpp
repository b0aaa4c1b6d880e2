#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/engine/model_pool.h"
#include "tests/adapters/adapter_writer.h"
#include "tests/engine/tiny_model_folder.h"

namespace mlxx::engine {
namespace {

using adapters::random_change;

class PoolAdapters : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(folder_.path() / "m");
    for (const char* name : {"good", "other"}) {
      auto path = folder_.path() / "adapters" / name;
      std::filesystem::create_directories(path);
      adapters::write_mlx_lm(
          path,
          {random_change("model.layers.1.mlp.up_proj", 128, 256, 4, 1)});
    }
    auto wrong = folder_.path() / "adapters" / "wrong";
    std::filesystem::create_directories(wrong);
    adapters::write_mlx_lm(
        wrong,
        {random_change("model.layers.7.mlp.up_proj", 128, 256, 4, 1)});
    options_.memory_budget = 0;
    options_.adapters_folder = folder_.path() / "adapters";
    make();
  }
  void make() {
    ModelListOptions models;
    models.models.push_back({"m", folder_.path() / "m"});
    pool_ = std::make_unique<ModelPool>(
        std::make_shared<ModelList>(std::move(models)),
        options_);
  }
  ErrorKind kind_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "no error";
    return ErrorKind::internal;
  }

  TemporaryFolder folder_;
  ModelPoolOptions options_;
  std::unique_ptr<ModelPool> pool_;
};

TEST_F(PoolAdapters, MountListAndUnmount) {
  AdapterList& list = *pool_->adapters();
  EXPECT_TRUE(list.list_adapters().empty());
  size_t before = (pool_->runner("m"), pool_->stats().weights);
  AdapterEntry entry = list.mount_adapter("m", "x", "good");
  EXPECT_EQ(entry.model, "m");
  EXPECT_EQ(entry.format, "mlx-lm");
  EXPECT_EQ(entry.rank, 4);
  EXPECT_EQ(entry.modules, 1);
  EXPECT_GT(entry.bytes, 0u);
  EXPECT_EQ(pool_->stats().weights, before + entry.bytes);
  ASSERT_EQ(list.list_adapters().size(), 1u);
  EXPECT_EQ(list.list_adapters()[0].folder, "good");
  RowSettings settings;
  settings.adapter = "x";
  std::vector<int32_t> prompt = {'a', 'b'};
  EXPECT_TRUE(pool_->runner("m")->open(prompt, settings).row);
  list.unmount_adapter("m", "x");
  EXPECT_EQ(pool_->stats().weights, before);
  EXPECT_TRUE(list.list_adapters().empty());
  EXPECT_EQ(
      kind_of([&] { pool_->runner("m")->open(prompt, settings); }),
      ErrorKind::not_found);
}

TEST_F(PoolAdapters, TheyComeBackWithTheirModel) {
  AdapterList& list = *pool_->adapters();
  list.mount_adapter("m", "x", "good");
  list.mount_adapter("m", "y", "other");
  EXPECT_EQ(pool_->unload_idle(), 1);
  EXPECT_EQ(list.list_adapters().size(), 2u);
  EXPECT_EQ(list.list_adapters()[0].format, "");
  std::filesystem::remove_all(folder_.path() / "adapters" / "other");
  pool_->runner("m");
  ASSERT_EQ(list.list_adapters().size(), 1u);
  EXPECT_EQ(list.list_adapters()[0].name, "x");
  EXPECT_EQ(list.list_adapters()[0].format, "mlx-lm");
}

TEST_F(PoolAdapters, TheOperatorsOwn) {
  pool_->add_adapter("m", "own", folder_.path() / "adapters" / "good");
  EXPECT_EQ(pool_->stats().loaded, 0);
  RowSettings settings;
  settings.adapter = "own";
  std::vector<int32_t> prompt = {'a', 'b'};
  EXPECT_TRUE(pool_->runner("m")->open(prompt, settings).row);
  EXPECT_EQ(
      kind_of([&] {
        pool_->add_adapter("m", "own", folder_.path() / "adapters" / "good");
      }),
      ErrorKind::invalid_request);
}

TEST_F(PoolAdapters, AMisfitOfTheOperatorIsAnErrorAtTheStart) {
  pool_->add_adapter("m", "own", folder_.path() / "adapters" / "wrong");
  EXPECT_EQ(kind_of([&] { pool_->load_first("m"); }), ErrorKind::bad_file);
  make();
  pool_->add_adapter("m", "own", folder_.path() / "adapters" / "good");
  pool_->load_first("m");
  EXPECT_EQ(pool_->list_adapters().size(), 1u);
}

TEST_F(PoolAdapters, WhatIsRefused) {
  AdapterList& list = *pool_->adapters();
  using Kind = ErrorKind;
  const std::tuple<const char*, const char*, const char*, Kind> cases[] = {
      {"nobody", "x", "good", Kind::not_found},
      {"m", "x", "none", Kind::not_found},
      {"m", "a b", "good", Kind::invalid_request},
      {"m", "x", "", Kind::invalid_request},
      {"m", "x", "..", Kind::invalid_request},
      {"m", "x", "../adapters/good", Kind::invalid_request},
      {"m", "x", "/etc", Kind::invalid_request},
      {"m", "x", "wrong", Kind::invalid_request},
  };
  for (auto [model, name, folder, kind] : cases) {
    EXPECT_EQ(kind_of([&] { list.mount_adapter(model, name, folder); }), kind)
        << model << name << folder;
    EXPECT_TRUE(list.list_adapters().empty());
  }
  EXPECT_EQ(kind_of([&] { list.unmount_adapter("m", "x"); }), Kind::not_found);
  list.mount_adapter("m", "x", "good");
  EXPECT_EQ(
      kind_of([&] { list.mount_adapter("m", "x", "other"); }),
      Kind::invalid_request);
  EXPECT_EQ(list.list_adapters()[0].folder, "good");
  options_.adapters_folder.clear();
  make();
  EXPECT_EQ(
      kind_of([&] { pool_->adapters()->mount_adapter("m", "x", "good"); }),
      Kind::unsupported);
}

}  // namespace
}  // namespace mlxx::engine
