// Adapters of experts and embeddings: packed or not, several rows in one pass,
// files of both layouts.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/adapters/adaptable_modules.h"
#include "mlxx/adapters/mounted.h"
#include "mlxx/adapters/write_adapter.h"
#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "tests/adapters/adapter_writer.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::adapters {
namespace {

Json mixture_config() {
  return parse_json(
      R"({"model_type":"qwen3_moe","vocab_size":96,"hidden_size":64,
          "intermediate_size":96,"moe_intermediate_size":32,
          "num_hidden_layers":2,"num_attention_heads":4,
          "num_key_value_heads":2,"head_dim":16,"num_experts":4,
          "num_experts_per_tok":2,"norm_topk_prob":true,
          "decoder_sparse_step":1,"mlp_only_layers":[],
          "rms_norm_eps":1e-5,"rope_theta":10000.0,
          "max_position_embeddings":512,"tie_word_embeddings":true})",
      "config.json");
}

LowRank expert_change(
    const std::string& module,
    int in,
    int out,
    uint64_t key,
    int rank = 4) {
  return {
      module,
      noise({4, rank, in}, key, 0.3f),
      noise({4, out, rank}, key + 1000, 0.3f),
      1.5f,
      std::nullopt};
}

std::vector<LowRank> changes_of(uint64_t key) {
  std::string experts = "model.layers.1.mlp.switch_mlp.";
  return {
      random_change("model.embed_tokens", 96, 64, 4, key),
      random_change("model.layers.0.self_attn.q_proj", 64, 64, 4, key + 1),
      expert_change(experts + "gate_proj", 64, 32, key + 2),
      expert_change(experts + "up_proj", 64, 32, key + 3),
      expert_change(experts + "down_proj", 32, 64, key + 4)};
}

mx::array tokens_of(int row, int length) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) {
    ids.push_back((row * 37 + i * 11 + 5) % 96);
  }
  return mx::array(ids.data(), {1, length}, mx::int32);
}

cache::CacheList layer_caches(const models::Model& model) {
  models::CacheOptions options;
  options.per_layer = true;
  return model.make_cache(options);
}

mx::array logits_of(
    const models::Model& model,
    const std::shared_ptr<const AdapterStack>& stack,
    const mx::array& tokens) {
  auto caches = layer_caches(model);
  auto adapters = adapters_of_rows({stack});
  nn::AdapterScope scope(adapters.get());
  mx::array logits = model.forward(tokens, caches);
  mx::eval(logits);
  return logits;
}

// The checkpoint with the changes added to its weights.
models::FakeCheckpoint merged(
    const models::FakeCheckpoint& checkpoint,
    const std::vector<LowRank>& changes) {
  models::FakeCheckpoint result = checkpoint;
  for (const LowRank& one : changes) {
    mx::array product =
        one.a.ndim() == 3 ? mx::matmul(one.b, one.a) : mx::matmul(one.a, one.b);
    bool turned = one.a.ndim() == 2 && one.module != "model.embed_tokens";
    mx::array sum = mx::add(
        checkpoint.load(one.module + ".weight", {}).weight,
        mx::multiply(
            mx::array(one.scale),
            turned ? mx::transpose(product) : product));
    if (one.magnitude) {
      mx::array gain = mx::divide(*one.magnitude, mx::linalg::norm(sum, {-1}));
      sum = mx::multiply(mx::expand_dims(gain, -1), sum);
    }
    result.add(one.module + ".weight", sum);
  }
  return result;
}

class ExpertsAndEmbeddings : public testing::TestWithParam<bool> {};

// 20 tokens, and 40, whose routed rows are sorted by expert where weights are
// not packed.
TEST_P(ExpertsAndEmbeddings, MountedEqualMergedWeights) {
  auto selection = models::selection(GetParam());
  models::LoadOptions options{.kernels = selection};
  auto checkpoint = models::random_checkpoint(mixture_config());
  auto model = models::load_model(checkpoint, options);
  auto changes = changes_of(3);
  auto expected = models::load_model(merged(checkpoint, changes), options);
  MountedAdapters mounted(model, selection);
  mounted.mount("x", AdapterFile{"mlx-lm", changes});
  EXPECT_FALSE(mounted.find("x")->fits_program());
  for (int length : {20, 40}) {
    mx::array ids = tokens_of(0, length);
    mx::array wanted = logits_of(*expected, nullptr, ids);
    EXPECT_LT(
        relative_error(logits_of(*model, mounted.find("x"), ids), wanted),
        3e-4f);
    EXPECT_GT(relative_error(logits_of(*model, nullptr, ids), wanted), 0.05f);
  }
}

TEST_P(ExpertsAndEmbeddings, DoraOfATiedEmbedding) {
  auto selection = models::selection(GetParam());
  models::LoadOptions options{.kernels = selection};
  auto checkpoint = models::random_checkpoint(mixture_config());
  auto model = models::load_model(checkpoint, options);
  LowRank change = random_change("model.embed_tokens", 96, 64, 4, 8);
  change.magnitude = mx::add(mx::array(1.0f), mx::abs(noise({96}, 77, 0.3f)));
  auto expected = models::load_model(merged(checkpoint, {change}), options);
  MountedAdapters mounted(model, selection);
  mounted.mount("x", AdapterFile{"mlx-lm", {change}});
  mx::array ids = tokens_of(1, 12);
  EXPECT_LT(
      relative_error(
          logits_of(*model, mounted.find("x"), ids),
          logits_of(*expected, nullptr, ids)),
      3e-4f);
}

// One more token for rows with one adapter, another, none and both.
TEST_P(ExpertsAndEmbeddings, RowsOfOnePassEqualRowsAlone) {
  auto selection = models::selection(GetParam());
  auto model = models::load_model(
      models::random_checkpoint(mixture_config()),
      models::LoadOptions{.kernels = selection});
  MountedAdapters mounted(model, selection);
  mounted.mount("a", AdapterFile{"mlx-lm", changes_of(1)});
  mounted.mount("b", AdapterFile{"mlx-lm", changes_of(60)});
  const std::vector<std::string> names = {"a", "a", "", "b", "a+b"};
  std::vector<cache::CacheList> together;
  std::vector<cache::CacheList> alone;
  std::vector<std::shared_ptr<const AdapterStack>> stacks;
  for (size_t row = 0; row < names.size(); ++row) {
    stacks.push_back(mounted.find(names[row]));
    auto adapters = adapters_of_rows({stacks.back()});
    nn::AdapterScope scope(adapters.get());
    for (auto* list : {&together, &alone}) {
      list->push_back(layer_caches(*model));
      int length = 3 + static_cast<int>(row) * 5;
      mx::eval(model->forward_last(
          tokens_of(static_cast<int>(row), length),
          list->back()));
    }
  }
  std::vector<cache::CacheList*> rows;
  for (auto& caches : together) {
    rows.push_back(&caches);
  }
  mx::array fed({7, 8, 9, 10, 11}, {5}, mx::int32);
  std::optional<mx::array> joined;
  {
    auto adapters = adapters_of_rows(stacks);
    nn::AdapterScope scope(adapters.get());
    joined = model->forward_rows(fed, rows);
    mx::eval(*joined);
  }
  for (int row = 0; row < 5; ++row) {
    auto adapters = adapters_of_rows({stacks[static_cast<size_t>(row)]});
    nn::AdapterScope scope(adapters.get());
    mx::array single = model->forward_last(
        mx::array({7 + row}, {1, 1}, mx::int32),
        alone[static_cast<size_t>(row)]);
    mx::array own = mx::contiguous(mx::slice(*joined, {row, 0}, {row + 1, 96}));
    if (GetParam()) {
      EXPECT_LT(relative_error(own, single), 1e-5f) << row;
    } else {
      EXPECT_TRUE(same_bits(own, single)) << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Adapters,
    ExpertsAndEmbeddings,
    testing::Bool(),
    [](const auto& info) { return info.param ? "Fallback" : "Kernels"; });

// What both layouts give back computes the same, square layers included.
TEST(WrittenAdapters, BothLayoutsAreReadBack) {
  auto selection = models::selection(true);
  auto model = models::load_model(
      models::random_checkpoint(mixture_config()),
      models::LoadOptions{.kernels = selection});
  AdapterContent content;
  content.modules = changes_of(5);
  content.dropout = 0.1;
  content.num_layers = 2;
  content.keys = {"self_attn.q_proj"};
  // Ranks and scales of their own.
  content.modules.push_back(
      random_change("model.layers.1.self_attn.o_proj", 64, 64, 6, 90));
  content.modules.back().scale = 3;
  MountedAdapters mounted(model, selection);
  mounted.mount("memory", AdapterFile{"mlx-lm", content.modules});
  mx::array ids = tokens_of(0, 40);
  mx::array expected = logits_of(*model, mounted.find("memory"), ids);
  for (bool peft : {false, true}) {
    for (bool stabilized : {false, true}) {
      TemporaryFolder folder;
      content.rank_stabilized = stabilized;
      (peft ? write_peft_adapter : write_mlx_adapter)(folder.path(), content);
      AdapterFile file = read_adapter(folder.path());
      EXPECT_EQ(file.format, peft ? "peft" : "mlx-lm");
      EXPECT_EQ(file.modules.size(), content.modules.size());
      mounted.mount("file", file);
      EXPECT_LT(
          relative_error(
              logits_of(*model, mounted.find("file"), ids),
              expected),
          1e-6f);
      mounted.unmount("file");
      // A model with an expert more or less, or with other embeddings.
      for (const char* key : {"num_experts", "vocab_size"}) {
        Json config = mixture_config();
        config[key] = config[key].get<int>() + 2;
        MountedAdapters other(
            models::load_model(
                models::random_checkpoint(config),
                models::LoadOptions{.kernels = selection}),
            selection);
        EXPECT_THROW(other.mount("file", folder.path()), Error) << key;
        EXPECT_TRUE(other.list().empty());
      }
    }
  }
}

TEST(WrittenAdapters, WhatALayoutCannotSayIsRefused) {
  TemporaryFolder folder;
  AdapterContent content;
  EXPECT_THROW(write_mlx_adapter(folder.path(), content), Error);
  content.modules = {
      random_change("model.layers.0.mlp.gate", 64, 4, 2, 1),
      random_change("model.layers.0.self_attn.q_proj", 64, 64, 2, 1, true)};
  EXPECT_THROW(write_mlx_adapter(folder.path(), content), Error);
  content.modules = {random_change("model.embed_tokens", 96, 64, 2, 1, true)};
  EXPECT_THROW(write_peft_adapter(folder.path(), content), Error);
  content.modules = {
      expert_change("model.layers.0.mlp.experts.up_proj", 64, 32, 1)};
  EXPECT_THROW(write_peft_adapter(folder.path(), content), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Of PEFT's modules of experts none may be missing.
TEST(WrittenAdapters, AMissingExpertIsNamed) {
  std::string start = "model.layers.0.mlp.experts.";
  std::vector<LowRank> changes = {
      random_change(start + "0.up_proj", 64, 32, 4, 1),
      random_change(start + "2.up_proj", 64, 32, 4, 2)};
  TemporaryFolder folder;
  write_peft(folder.path(), changes, peft_config(changes));
  try {
    read_adapter(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expert 1"), std::string::npos)
        << error.what();
  }
  changes[1].module = start + "00.up_proj";
  write_peft(folder.path(), changes, peft_config(changes));
  EXPECT_THROW(read_adapter(folder.path()), Error);
}

// Damaged files are refused, or mounted as what they say; nothing else.
TEST(WrittenAdapters, DamagedFilesNeverDoHarm) {
  auto selection = models::selection(true);
  auto model = models::load_model(
      models::random_checkpoint(mixture_config()),
      models::LoadOptions{.kernels = selection});
  AdapterContent content;
  content.modules = changes_of(5);
  std::mt19937 random(4);
  int refused = 0;
  for (bool peft : {false, true}) {
    TemporaryFolder folder;
    (peft ? write_peft_adapter : write_mlx_adapter)(folder.path(), content);
    auto path = folder.path() /
        (peft ? "adapter_model.safetensors" : "adapters.safetensors");
    const std::string whole = read_file(path, 1 << 24);
    for (int round = 0; round < 100; ++round) {
      std::string damaged = whole;
      size_t head = std::min<size_t>(damaged.size(), 2000);
      for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
        damaged[random() % head] = static_cast<char>('0' + random() % 60);
      }
      std::ofstream(path, std::ios::binary) << damaged;
      MountedAdapters mounted(model, selection);
      try {
        mounted.mount("x", folder.path());
        EXPECT_EQ(mounted.list().size(), 1u);
      } catch (const Error&) {
        EXPECT_TRUE(mounted.list().empty());
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(WrittenAdapters, ScalesThatContradictAndImpossibleDropouts) {
  std::vector<LowRank> changes = {
      random_change("model.layers.0.self_attn.o_proj", 64, 64, 4, 5)};
  TemporaryFolder folder;
  write_mlx_lm(folder.path(), changes);
  auto reads = [&](const char* parameters) {
    write_config(
        folder.path(),
        {{"lora_parameters", parse_json(parameters, "test")}});
    try {
      return read_adapter(folder.path()).modules[0].scale;
    } catch (const Error&) {
      return 0.0f;
    }
  };
  EXPECT_EQ(reads(R"({"rank": 4, "scale": 3, "alpha": 12})"), 3);
  EXPECT_EQ(reads(R"({"rank": 4, "scale": 3, "alpha": 3})"), 0);
  EXPECT_EQ(reads(R"({"rank": 4, "scale": 3, "dropout": 0.5})"), 3);
  EXPECT_EQ(reads(R"({"rank": 4, "scale": 3, "dropout": 1.0})"), 0);
  EXPECT_EQ(reads(R"({"rank": 4, "scale": 3, "dropout": -0.1})"), 0);
}

}  // namespace
}  // namespace mlxx::adapters
