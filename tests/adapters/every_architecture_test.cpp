// Adapters on every linear layer of every architecture of the registry equal
// merged weights.
#include <gtest/gtest.h>

#include "mlxx/adapters/mounted.h"
#include "mlxx/base/error.h"
#include "tests/adapters/adapter_writer.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::adapters {
namespace {

class EveryArchitecture :
    public testing::TestWithParam<const models::ModelInfo*> {};

mx::array logits_of(
    const models::Model& model,
    const std::shared_ptr<const AdapterStack>& stack) {
  models::CacheOptions options;
  options.per_layer = true;
  auto caches = model.make_cache(options);
  std::vector<int32_t> ids;
  for (int i = 0; i < 10; ++i) {
    ids.push_back((i * 11 + 5) % model.summary().vocab_size);
  }
  auto adapters = adapters_of_rows({stack});
  nn::AdapterScope scope(adapters.get());
  mx::array logits =
      model.forward(mx::array(ids.data(), {1, 10}, mx::int32), caches);
  mx::eval(logits);
  return logits;
}

TEST_P(EveryArchitecture, MountedEqualsMerged) {
  Json config = parse_json(GetParam()->tiny_config, "tiny");
  models::FakeCheckpoint checkpoint = models::random_checkpoint(config);
  // Plain operations: a model's kernels may round otherwise per matrix.
  auto selection = models::selection(true);
  auto model =
      models::load_model(checkpoint, models::LoadOptions{.kernels = selection});
  models::FakeCheckpoint changed = checkpoint;
  AdapterFile file{"mlx-lm", {}};
  uint64_t key = 1;
  MountedAdapters mounted(model, selection);
  model->visit([&](const std::string& name, const Parameter& parameter) {
    if (parameter.shape().size() != 2 || !name.ends_with(".weight")) {
      return;
    }
    LowRank change = random_change(
        name.substr(0, name.size() - 7),
        parameter.shape()[1],
        parameter.shape()[0],
        2,
        ++key);
    change.scale = 0.5f;
    try {
      mounted.mount("try", AdapterFile{"mlx-lm", {change}});
      mounted.unmount("try");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what();
      return;
    }
    mx::array sum = mx::add(
        checkpoint.load(name, {}).weight,
        mx::multiply(
            mx::array(change.scale),
            mx::transpose(mx::matmul(change.a, change.b))));
    changed.add(name, sum);
    file.modules.push_back(std::move(change));
  });
  ASSERT_GE(file.modules.size(), 3u);
  AdapterInfo info = mounted.mount("all", file);
  EXPECT_EQ(info.modules, static_cast<int>(file.modules.size()));
  auto merged =
      models::load_model(changed, models::LoadOptions{.kernels = selection});
  mx::array expected = logits_of(*merged, nullptr);
  EXPECT_LT(
      relative_error(logits_of(*model, mounted.find("all")), expected),
      2e-3f);
  EXPECT_GT(relative_error(logits_of(*model, nullptr), expected), 1e-2f);
}

INSTANTIATE_TEST_SUITE_P(
    Adapters,
    EveryArchitecture,
    testing::ValuesIn(models::all_models().begin(), models::all_models().end()),
    [](const auto& info) {
      std::string name(info.param->model_type);
      std::ranges::replace_if(
          name,
          [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
          '_');
      return name;
    });

}  // namespace
}  // namespace mlxx::adapters
