#include "mlxx/adapters/mounted.h"

#include <gtest/gtest.h>

#include "mlxx/adapters/linear_change.h"
#include "mlxx/base/error.h"
#include "mlxx/models/fused_decoder.h"
#include "tests/adapters/adapter_writer.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::adapters {
namespace {

using models::FakeCheckpoint;

Json llama_config() {
  return parse_json(
      R"({"model_type":"llama","vocab_size":96,"hidden_size":64,
          "intermediate_size":128,"num_hidden_layers":2,
          "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
          "rms_norm_eps":1e-5,"attention_bias":true,
          "tie_word_embeddings":false})",
      "config.json");
}

std::vector<LowRank> changes_of(uint64_t key, bool dora = false, int rank = 4) {
  return {
      random_change("model.layers.0.self_attn.q_proj", 64, 64, rank, key, dora),
      random_change(
          "model.layers.0.self_attn.k_proj",
          64,
          32,
          rank,
          key + 1,
          dora),
      random_change(
          "model.layers.1.self_attn.o_proj",
          64,
          64,
          rank,
          key + 2,
          dora),
      random_change("model.layers.1.mlp.up_proj", 64, 128, rank, key + 3, dora),
      random_change(
          "model.layers.1.mlp.down_proj",
          128,
          64,
          rank,
          key + 4,
          dora),
      random_change("lm_head", 64, 96, rank, key + 5, dora)};
}

mx::array merged(const mx::array& weight, const LowRank& change) {
  mx::array sum = mx::add(
      weight,
      mx::multiply(
          mx::array(change.scale),
          mx::transpose(mx::matmul(change.a, change.b))));
  if (change.magnitude) {
    mx::array gain = mx::divide(*change.magnitude, mx::linalg::norm(sum, {1}));
    sum = mx::multiply(mx::expand_dims(gain, 1), sum);
  }
  mx::eval(sum);
  return sum;
}

// Layer by layer, or as one program.
enum class Way { layers, program };

cache::CacheList caches_for(const models::Model& model, Way way = Way::layers) {
  models::CacheOptions options;
  options.per_layer = way == Way::layers;
  auto caches = model.make_cache(options);
  EXPECT_EQ(models::FusedDecoder::made(caches), way == Way::program);
  return caches;
}

mx::array tokens_of(int row, int length) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) {
    ids.push_back((row * 37 + i * 11 + 5) % 96);
  }
  return mx::array(ids.data(), {1, length}, mx::int32);
}

mx::array logits_of(
    const models::Model& model,
    const std::shared_ptr<const AdapterStack>& stack,
    const mx::array& tokens,
    Way way = Way::layers) {
  auto caches = caches_for(model, way);
  auto adapters = adapters_of_rows({stack});
  nn::AdapterScope scope(adapters.get());
  mx::array logits = model.forward(tokens, caches);
  mx::eval(logits);
  return logits;
}

struct Variant {
  bool fallback;
  bool dora;
};

class Mounting : public testing::TestWithParam<Variant> {};

TEST_P(Mounting, EqualsMergedWeights) {
  FakeCheckpoint checkpoint = models::random_checkpoint(llama_config());
  auto selection = models::selection(GetParam().fallback);
  auto base =
      models::load_model(checkpoint, models::LoadOptions{.kernels = selection});
  auto changes = changes_of(1, GetParam().dora);
  FakeCheckpoint changed = checkpoint;
  for (const LowRank& change : changes) {
    std::string name = change.module + ".weight";
    changed.add(name, merged(checkpoint.load(name, {}).weight, change));
  }
  auto other =
      models::load_model(changed, models::LoadOptions{.kernels = selection});
  MountedAdapters mounted(base, selection);
  AdapterInfo info = mounted.mount("x", AdapterFile{"mlx-lm", changes});
  EXPECT_EQ(info.modules, 6);
  EXPECT_EQ(info.dora, GetParam().dora);
  mx::array ids = tokens_of(0, 20);
  mx::array plain = logits_of(*base, nullptr, ids);
  mx::array expected = logits_of(*other, nullptr, ids);
  mx::array got = logits_of(*base, mounted.find("x"), ids);
  EXPECT_LT(relative_error(got, expected), 2e-4f);
  EXPECT_GT(relative_error(plain, expected), 0.05f);
  // The base is as it was.
  EXPECT_TRUE(same_bits(logits_of(*base, nullptr, ids), plain));
  if (GetParam().fallback) {
    return;
  }
  auto stack = mounted.find("x");
  EXPECT_TRUE(stack->fits_program());
  mx::array program = logits_of(*base, stack, ids, Way::program);
  // Keys and values are half precision there.
  EXPECT_LT(relative_error(program, expected), 1e-3f);
  EXPECT_LT(
      relative_error(program, logits_of(*other, nullptr, ids, Way::program)),
      3e-4f);
  EXPECT_GT(
      relative_error(logits_of(*base, nullptr, ids, Way::program), expected),
      0.05f);
  // Two of their own, one after the other.
  mounted.mount("y", AdapterFile{"mlx-lm", changes_of(70, false, 7)});
  if (!GetParam().dora) {
    EXPECT_LT(
        relative_error(
            logits_of(*base, mounted.find("x+y"), ids, Way::program),
            logits_of(*base, mounted.find("x+y"), ids)),
        1e-3f);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Adapters,
    Mounting,
    testing::Values(
        Variant{false, false},
        Variant{false, true},
        Variant{true, false},
        Variant{true, true}),
    [](const auto& info) {
      return fmt::format(
          "{}{}",
          info.param.fallback ? "Fallback" : "Kernels",
          info.param.dora ? "Dora" : "Lora");
    });

// Rows without, with one, with another and with both, in one pass.
TEST(MountedAdapters, ARowsBitsDoNotDependOnTheOthers) {
  for (auto [quantized, way] :
       {std::pair(false, Way::layers),
        std::pair(true, Way::layers),
        std::pair(false, Way::program),
        std::pair(true, Way::program)}) {
    std::optional<hub::Quantization> q;
    if (quantized) {
      q = hub::Quantization{32, 4, "affine"};
    }
    auto selection = models::selection(false);
    auto model = models::load_model(
        models::random_checkpoint(llama_config(), q),
        models::LoadOptions{.kernels = selection});
    MountedAdapters mounted(model, selection);
    mounted.mount("a", AdapterFile{"mlx-lm", changes_of(1)});
    mounted.mount("b", AdapterFile{"mlx-lm", changes_of(50, false, 7)});
    mounted.mount("d", AdapterFile{"mlx-lm", changes_of(90, true)});
    std::vector<std::string> names = {"a", "a", "", "b", "d", "a+b"};
    std::vector<cache::CacheList> together;
    std::vector<cache::CacheList> alone;
    for (size_t row = 0; row < names.size(); ++row) {
      auto adapters = adapters_of_rows({mounted.find(names[row])});
      nn::AdapterScope scope(adapters.get());
      for (auto* list : {&together, &alone}) {
        list->push_back(caches_for(*model, way));
        int length = 3 + static_cast<int>(row) * 9;
        mx::eval(model->forward_last(
            tokens_of(static_cast<int>(row), length),
            list->back()));
      }
    }
    for (int step = 0; step < 3; ++step) {
      std::vector<cache::CacheList*> rows;
      std::vector<std::shared_ptr<const AdapterStack>> stacks;
      std::vector<int32_t> fed;
      for (size_t row = 0; row < names.size(); ++row) {
        rows.push_back(&together[row]);
        stacks.push_back(mounted.find(names[row]));
        fed.push_back(static_cast<int32_t>(row) * 3 + step);
      }
      std::optional<mx::array> joined;
      {
        auto adapters = adapters_of_rows(stacks);
        nn::AdapterScope scope(adapters.get());
        joined = model->forward_rows(
            mx::array(fed.data(), {static_cast<int>(fed.size())}, mx::int32),
            rows);
        mx::eval(*joined);
      }
      for (size_t row = 0; row < names.size(); ++row) {
        auto adapters = adapters_of_rows({stacks[row]});
        nn::AdapterScope scope(adapters.get());
        mx::array single = model->forward_last(
            mx::array({fed[row]}, {1, 1}, mx::int32),
            alone[row]);
        int r = static_cast<int>(row);
        EXPECT_TRUE(same_bits(
            mx::contiguous(mx::slice(*joined, {r, 0}, {r + 1, 96})),
            single))
            << names[row] << " step " << step;
      }
    }
  }
}

TEST(MountedAdapters, PeftOnASquareLayer) {
  auto selection = models::selection(true);
  auto model = models::load_model(
      models::random_checkpoint(llama_config()),
      models::LoadOptions{.kernels = selection});
  std::vector<LowRank> changes = {
      random_change("model.layers.0.self_attn.o_proj", 64, 64, 64, 5)};
  TemporaryFolder folder;
  write_peft(folder.path(), changes, peft_config(changes));
  MountedAdapters mounted(model, selection);
  mounted.mount("file", folder.path());
  mounted.mount("memory", AdapterFile{"mlx-lm", changes});
  mx::array ids = tokens_of(2, 9);
  EXPECT_LT(
      relative_error(
          logits_of(*model, mounted.find("file"), ids),
          logits_of(*model, mounted.find("memory"), ids)),
      1e-6f);
  EXPECT_EQ(
      mounted.find("file")->identity(),
      mounted.find("memory")->identity());
}

TEST(MountedAdapters, MatricesThatAreTakenApart) {
  Json config = parse_json(
      R"({"model_type":"phi3","vocab_size":96,"hidden_size":64,
          "intermediate_size":128,"num_hidden_layers":2,
          "num_attention_heads":4,"num_key_value_heads":2,
          "rms_norm_eps":1e-5,"tie_word_embeddings":false,
          "max_position_embeddings":512,
          "original_max_position_embeddings":512})",
      "config.json");
  FakeCheckpoint checkpoint = models::random_checkpoint(config);
  auto selection = models::selection(false);
  auto model =
      models::load_model(checkpoint, models::LoadOptions{.kernels = selection});
  std::string layer = "model.layers.1.";
  std::vector<LowRank> whole = {
      random_change(layer + "self_attn.qkv_proj", 64, 128, 4, 1),
      random_change(layer + "mlp.gate_up_proj", 64, 256, 4, 2)};
  auto part =
      [](const LowRank& from, const std::string& name, int first, int end) {
        LowRank one = from;
        one.module = name;
        one.b = mx::slice(from.b, {0, first}, {from.b.shape(0), end});
        return one;
      };
  std::vector<LowRank> parts = {
      part(whole[0], layer + "self_attn.q_proj", 0, 64),
      part(whole[0], layer + "self_attn.k_proj", 64, 96),
      part(whole[0], layer + "self_attn.v_proj", 96, 128),
      part(whole[1], layer + "mlp.gate_proj", 0, 128),
      part(whole[1], layer + "mlp.up_proj", 128, 256)};
  MountedAdapters mounted(model, selection);
  mounted.mount("whole", AdapterFile{"peft", whole});
  mounted.mount("parts", AdapterFile{"peft", parts});
  mx::array ids = tokens_of(1, 12);
  EXPECT_TRUE(same_bits(
      logits_of(*model, mounted.find("whole"), ids),
      logits_of(*model, mounted.find("parts"), ids)));
}

TEST(MountedAdapters, WhatDoesNotFitTheModelIsRefusedAsAWhole) {
  auto selection = models::selection(false);
  auto model = models::load_model(
      models::random_checkpoint(llama_config()),
      models::LoadOptions{.kernels = selection});
  MountedAdapters mounted(model, selection);
  auto error_of = [&](const LowRank& odd) {
    auto changes = changes_of(1);
    changes.push_back(odd);
    try {
      mounted.mount("odd", AdapterFile{"mlx-lm", changes});
    } catch (const Error& error) {
      EXPECT_TRUE(mounted.list().empty());
      return std::string(error.what());
    }
    mounted.unmount("odd");
    return std::string();
  };
  EXPECT_EQ(
      error_of(random_change("model.layers.0.self_attn.v_proj", 64, 32, 4, 1)),
      "");
  // A name misspelled, another width, a layer twice, no linear layer.
  EXPECT_NE(
      error_of(random_change("model.layers.0.self_attn.w_proj", 64, 32, 4, 1)),
      "");
  EXPECT_NE(
      error_of(random_change("model.layers.9.self_attn.v_proj", 64, 32, 4, 1)),
      "");
  EXPECT_NE(
      error_of(random_change("model.layers.0.self_attn.v_proj", 96, 32, 4, 1)),
      "");
  EXPECT_NE(
      error_of(random_change("model.layers.0.self_attn.v_proj", 64, 64, 4, 1)),
      "");
  EXPECT_NE(error_of(random_change("lm_head", 64, 96, 4, 1)), "");
  EXPECT_NE(error_of(random_change("model.embed_tokens", 64, 96, 4, 1)), "");
  EXPECT_NE(error_of(random_change("model.norm", 64, 64, 4, 1)), "");
}

TEST(MountedAdapters, Names) {
  auto selection = models::selection(true);
  auto model = models::load_model(
      models::random_checkpoint(llama_config()),
      models::LoadOptions{.kernels = selection});
  MountedAdapters mounted(model, selection);
  for (const char* name : {"", "a+b", "a b", "../a", "a\n"}) {
    EXPECT_THROW(mounted.mount(name, AdapterFile{"", changes_of(1)}), Error)
        << name;
  }
  mounted.mount("a", AdapterFile{"", changes_of(1)});
  EXPECT_THROW(mounted.mount("a", AdapterFile{"", changes_of(1)}), Error);
  mounted.mount("b", AdapterFile{"", changes_of(2)});
  mounted.mount("d", AdapterFile{"", changes_of(3, true)});
  EXPECT_EQ(mounted.find(""), nullptr);
  EXPECT_NE(mounted.find("a")->identity(), mounted.find("b")->identity());
  EXPECT_EQ(mounted.find("a+b")->adapters().size(), 2u);
  for (const char* names : {"c", "a+", "+", "a+c", "a+a", "a+d"}) {
    EXPECT_THROW(mounted.find(names), Error) << names;
  }
  auto kept = mounted.find("a");
  mounted.unmount("a");
  EXPECT_THROW(mounted.unmount("a"), Error);
  EXPECT_THROW(mounted.find("a"), Error);
  EXPECT_EQ(logits_of(*model, kept, tokens_of(0, 3)).shape(1), 3);
}

}  // namespace
}  // namespace mlxx::adapters
