// Adapters on every layer of every architecture of the registry that can have
// one (linear, experts, embedding) equal merged weights.
#include <gtest/gtest.h>

#include "mlxx/adapters/adaptable_modules.h"
#include "mlxx/adapters/mounted.h"
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

// A change of a module of that kind.
LowRank change_of(const AdaptableModule& module, uint64_t key) {
  constexpr int kRank = 2;
  if (module.kind != LayerKind::experts) {
    LowRank change =
        random_change(module.name, module.inputs, module.outputs, kRank, key);
    change.scale = 0.5f;
    return change;
  }
  return {
      module.name,
      noise({module.experts, kRank, module.inputs}, key, 0.2f),
      noise({module.experts, module.outputs, kRank}, key + 1000, 0.2f),
      0.5f,
      std::nullopt};
}

// What it adds to the weights, of all parts in one.
mx::array added(const LowRank& change, LayerKind kind) {
  mx::array product = kind == LayerKind::experts
      ? mx::matmul(change.b, change.a)
      : mx::matmul(change.a, change.b);
  return mx::multiply(
      mx::array(change.scale),
      kind == LayerKind::linear ? mx::transpose(product) : product);
}

TEST_P(EveryArchitecture, MountedEqualsMerged) {
  Json config = parse_json(GetParam()->tiny_config, "tiny");
  models::FakeCheckpoint checkpoint = models::random_checkpoint(config);
  // Plain operations: a model's kernels may round otherwise per matrix.
  auto selection = models::selection(true);
  auto model =
      models::load_model(checkpoint, models::LoadOptions{.kernels = selection});
  std::map<const Parameter*, std::string> names;
  model->visit([&](const std::string& name, const Parameter& parameter) {
    names[&parameter] = name;
  });
  models::FakeCheckpoint changed = checkpoint;
  AdapterFile file{"mlx-lm", {}};
  uint64_t key = 1;
  for (const AdaptableModule& module : adaptable_modules(*model)) {
    LowRank change = change_of(module, ++key);
    mx::array sum = added(change, module.kind);
    int first = 0;
    for (const Parameter* weight : module.weights) {
      const std::string& name = names.at(weight);
      mx::array part = sum;
      if (module.weights.size() > 1) {
        int end = first + weight->shape()[0];
        part = mx::slice(sum, {first, 0}, {end, sum.shape(1)});
        first = end;
      }
      changed.add(name, mx::add(checkpoint.load(name, {}).weight, part));
    }
    file.modules.push_back(std::move(change));
  }
  ASSERT_GE(file.modules.size(), 4u);
  MountedAdapters mounted(model, selection);
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
