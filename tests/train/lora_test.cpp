#include "mlxx/train/lora.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "mlxx/adapters/mounted.h"
#include "mlxx/base/error.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/models/fused_decoder.h"
#include "mlxx/train/save_trained.h"
#include "tests/kernels/relative_error.h"
#include "tests/train/tiny_models.h"

namespace mlxx::train {
namespace {

LoraOptions some_layers(bool dora = false) {
  LoraOptions options;
  options.dora = dora;
  options.rank = 4;
  options.scale = 2;
  return options;
}

struct Way {
  const char* name;
  bool mixture;
  bool quantized;
  bool dora;
  std::vector<std::string> keys;
};

class Adapting : public testing::TestWithParam<Way> {};

// Kernels and plain operations agree, and a folder that was trained gives the
// same logits when it is mounted.
TEST_P(Adapting, GradientsAndSavedAdapters) {
  const Way& way = GetParam();
  Json config = way.mixture ? mixture_config() : llama_config();
  LoraOptions options = some_layers(way.dora);
  options.keys = way.keys;
  std::vector<std::vector<mx::array>> gradients;
  for (bool fallback : {true, false}) {
    ModelPtr model = model_of(
        config,
        fallback,
        way.quantized ? std::optional(kFourBits) : std::nullopt);
    mx::array plain = forward(*model);
    LoraAdapters adapters(model, options);
    // The start changes nothing: by rounding only with DoRA.
    mx::array start = logits_of(*model, adapters);
    if (way.dora) {
      EXPECT_LT(relative_error(start, plain), 2e-4f);
    } else {
      EXPECT_TRUE(same_bits(start, plain));
    }
    shake(adapters, 50);
    mx::array trained = logits_of(*model, adapters);
    EXPECT_GT(relative_error(trained, plain), 1e-3f);
    gradients.push_back(gradients_of(*model, adapters));
    adapters.without([&] { EXPECT_TRUE(same_bits(forward(*model), plain)); });
    EXPECT_TRUE(same_bits(forward(*model), plain));

    for (auto layout : {AdapterLayout::mlx, AdapterLayout::peft}) {
      bool dora_table = way.dora && !way.keys.empty();
      if (layout == AdapterLayout::peft && dora_table) {
        continue;
      }
      TemporaryFolder folder;
      save_adapters(adapters, folder.path(), layout, "tiny");
      adapters::MountedAdapters mounted(model, selection_of(fallback));
      mounted.mount("x", folder.path());
      auto rows = adapters::adapters_of_rows({mounted.find("x")});
      nn::AdapterScope scope(rows.get());
      mx::array served = forward(*model);
      if (fallback && !dora_table) {
        EXPECT_TRUE(same_bits(served, trained));
      } else {
        EXPECT_LT(relative_error(served, trained), 1e-5f);
      }
    }
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_LT(relative_error(gradients[1][i], gradients[0][i]), 5e-3f) << i;
    EXPECT_GT(mx::max(mx::abs(gradients[0][i])).item<float>(), 0) << i;
  }
}

// As one program too, and as exact as its activations are: where they are
// integers, the program rounds others of them than layers do, with an adapter
// as without.
TEST(LoraAdapters, ServedIsWhatWasTrained) {
  for (auto [form, bound, of_program] :
       {std::tuple{kernels::ActivationForm::float32, 1e-5f, 1e-5f},
        std::tuple{kernels::ActivationForm::int16, 1e-4f, 1e-3f}}) {
    kernels::Selection selection = models::selection(false);
    selection.activations = form;
    ModelPtr model = models::load_model(
        models::random_checkpoint(llama_config(), kFourBits),
        models::LoadOptions{.kernels = selection});
    LoraAdapters adapters(model, some_layers());
    shake(adapters, 50);
    mx::array trained = logits_of(*model, adapters);
    TemporaryFolder folder;
    save_adapters(adapters, folder.path(), AdapterLayout::mlx, "tiny");
    adapters::MountedAdapters mounted(model, selection);
    mounted.mount("x", folder.path());
    auto stack = mounted.find("x");
    ASSERT_TRUE(stack->fits_program());
    auto rows = adapters::adapters_of_rows({stack, stack});
    nn::AdapterScope scope(rows.get());
    EXPECT_LT(relative_error(forward(*model), trained), bound);
    // A row by itself.
    auto one = adapters::adapters_of_rows({stack});
    nn::AdapterScope of_one(one.get());
    auto caches = model->make_cache({});
    ASSERT_TRUE(models::FusedDecoder::made(caches));
    mx::array first = mx::slice(tokens(), {0, 0}, {1, 12});
    mx::array served = model->forward(first, caches);
    mx::array expected =
        mx::slice(trained, {0, 0, 0}, {1, trained.shape(1), trained.shape(2)});
    EXPECT_LT(relative_error(served, expected), of_program);
  }
}

TEST(LoraAdapters, EachSaveIsKeptUnderItsNumber) {
  ModelPtr model = model_of(llama_config(), true);
  LoraAdapters adapters(model, some_layers(false));
  TemporaryFolder folder;
  auto save = [&](int64_t iteration, int keep) {
    shake(adapters, static_cast<uint64_t>(iteration) + 1);
    save_adapters(adapters, folder.path(), AdapterLayout::mlx, "tiny");
    save_numbered(folder.path(), iteration, keep);
  };
  auto there = [&](const std::string& number) {
    return std::filesystem::exists(
        folder.path() / (number + "_adapters.safetensors"));
  };
  auto first_b = [&](const std::string& file) {
    SafetensorsFile read(folder.path() / file);
    return read.load(*read.find(adapters.names().back()));
  };
  save(5, -1);
  mx::array fifth = first_b("adapters.safetensors");
  save(12345678, -1);
  save(10, 0);
  EXPECT_FALSE(there("0000010"));
  EXPECT_TRUE(same_bits(first_b("0000005_adapters.safetensors"), fifth));
  EXPECT_FALSE(same_bits(first_b("adapters.safetensors"), fifth));
  save(9, 2);
  EXPECT_TRUE(there("12345678"));
  EXPECT_TRUE(there("0000009"));
  EXPECT_FALSE(there("0000005"));
  remove_numbered(folder.path());
  EXPECT_FALSE(there("12345678"));
  EXPECT_FALSE(there("0000009"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "adapters.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(
    Train,
    Adapting,
    testing::Values(
        Way{"Lora", false, false, false, {}},
        Way{"QuantizedLora", false, true, false, {}},
        Way{"Dora", false, false, true, {}},
        Way{"QuantizedDora", false, true, true, {}},
        Way{"Experts", true, false, false, {}},
        Way{"QuantizedExperts", true, true, false, {}},
        Way{"Embedding", false, true, false, {"model.embed_tokens"}},
        Way{"DoraEmbedding", false, false, true, {"model.embed_tokens"}}),
    [](const auto& info) { return info.param.name; });

// The slope along the gradient is its length, in float32 plain operations.
TEST(LoraAdapters, GradientsEqualFiniteDifferences) {
  for (bool dora : {false, true}) {
    ModelPtr model = model_of(llama_config(), true);
    LoraOptions options = some_layers(dora);
    options.keys = {"self_attn.q_proj", "mlp.down_proj", "model.embed_tokens"};
    LoraAdapters adapters(model, options);
    shake(adapters, 9);
    auto gradients = gradients_of(*model, adapters);
    auto before = adapters.values();
    for (size_t i = 0; i < gradients.size(); ++i) {
      float length = mx::sqrt(mx::sum(mx::square(gradients[i]))).item<float>();
      auto loss_at = [&](float step) {
        auto moved = before;
        moved[i] = mx::add(
            moved[i],
            mx::multiply(gradients[i], mx::array(step / length)));
        mx::eval(moved[i]);
        adapters.set_values(moved);
        return loss_value(*model, adapters);
      };
      // DoRA's norm is a constant to the gradient of a and b.
      bool exact = !dora || adapters.names()[i].ends_with(".m");
      float slope = (loss_at(0.05f) - loss_at(-0.05f)) / 0.1f;
      if (exact) {
        EXPECT_NEAR(slope / length, 1, 0.05) << adapters.names()[i];
      }
      EXPECT_GT(length, 0) << adapters.names()[i];
    }
  }
}

TEST(LoraAdapters, NamesLayersAndStart) {
  ModelPtr model = model_of(llama_config(), true);
  LoraOptions options = some_layers();
  options.num_layers = 2;
  options.learning_rate_ratio = 16;
  options.keys = {"mlp.down_proj", "self_attn.q_proj", "model.embed_tokens"};
  LoraAdapters adapters(model, options);
  const std::vector<std::string> names = {
      "model.embed_tokens.lora_a",
      "model.embed_tokens.lora_b",
      "model.layers.1.self_attn.q_proj.lora_a",
      "model.layers.1.self_attn.q_proj.lora_b",
      "model.layers.1.mlp.down_proj.lora_a",
      "model.layers.1.mlp.down_proj.lora_b",
      "model.layers.2.self_attn.q_proj.lora_a",
      "model.layers.2.self_attn.q_proj.lora_b",
      "model.layers.2.mlp.down_proj.lora_a",
      "model.layers.2.mlp.down_proj.lora_b"};
  EXPECT_EQ(adapters.names(), names);
  const std::vector<int> layers = {-1, -1, 1, 1, 1, 1, 2, 2, 2, 2};
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(adapters.layer(i), layers[i]);
    bool is_b = names[i].ends_with("lora_b");
    EXPECT_EQ(adapters.learning_rate_ratio(i), is_b ? 16 : 1);
    mx::array largest = mx::max(mx::abs(adapters.values()[i]));
    int inputs =
        i < 2 ? 96 : (names[i].find("down") != names[i].npos ? 128 : 64);
    float bound = 1 / std::sqrt(static_cast<float>(inputs));
    EXPECT_LE(largest.item<float>(), is_b ? 0 : bound);
    EXPECT_GE(largest.item<float>(), is_b ? 0 : 0.9f * bound);
    EXPECT_EQ(adapters.values()[i].dtype(), mx::float32);
  }
  EXPECT_TRUE(same_bits(
      adapters.values()[2],
      LoraAdapters(model, options).values()[2]));
  options.seed = 1;
  EXPECT_FALSE(same_bits(
      adapters.values()[2],
      LoraAdapters(model, options).values()[2]));
}

TEST(LoraAdapters, RanksAndScalesOfModules) {
  ModelPtr dense = model_of(llama_config(), true);
  ModelPtr packed = model_of(llama_config(), false, kFourBits);
  LoraOptions options;
  options.rank = 3;
  options.alpha = 12;
  options.keys = {"self_attn.q_proj", "self_attn.v_proj"};
  options.ranks = RankPolicy::by_bits;
  EXPECT_EQ(LoraAdapters(packed, options).plan().modules[0].rank, 3);
  LoraAdapters wide(dense, options);
  EXPECT_EQ(wide.plan().modules[0].rank, 12);
  EXPECT_FLOAT_EQ(wide.plan().modules[0].scale, 1);
  options.rank_stabilized = true;
  EXPECT_FLOAT_EQ(
      LoraAdapters(dense, options).plan().modules[0].scale,
      12 / std::sqrt(12.0f));

  options.ranks = RankPolicy::by_kl;
  options.rank = 8;
  options.num_layers = 1;
  std::string start = "model.layers.2.self_attn.";
  EXPECT_THROW(LoraAdapters(dense, options), Error);
  options.sensitivities = {{start + "q_proj", 0.3}, {start + "v_proj", 0.1}};
  LoraAdapters by_kl(dense, options);
  EXPECT_EQ(by_kl.plan().modules[0].rank, 12);  // 0.3 / 0.2
  EXPECT_EQ(by_kl.plan().modules[1].rank, 4);
  // mlx-lm's layout has one rank and one scale, PEFT's has those of each.
  shake(by_kl, 4);
  mx::array trained = logits_of(*dense, by_kl);
  for (auto layout : {AdapterLayout::mlx, AdapterLayout::peft}) {
    TemporaryFolder folder;
    save_adapters(by_kl, folder.path(), layout, "");
    adapters::MountedAdapters mounted(dense, models::selection(true));
    mounted.mount("x", folder.path());
    auto rows = adapters::adapters_of_rows({mounted.find("x")});
    nn::AdapterScope scope(rows.get());
    EXPECT_LT(relative_error(forward(*dense), trained), 1e-6f);
  }
  TemporaryFolder table;
  auto path = (table.path() / "kl.json").string();
  std::ofstream(path) << R"({"a": 0.5, "b": 2})";
  EXPECT_EQ(read_sensitivities(path).at("b"), 2);
  std::ofstream(path) << R"({"a": "x"})";
  EXPECT_THROW(read_sensitivities(path), Error);
}

TEST(LoraAdapters, OptionsThatMakeNoSenseAreRefused) {
  ModelPtr model = model_of(llama_config(), true);
  auto message = [&](auto change, ModelPtr of = nullptr) {
    LoraOptions options = some_layers();
    change(options);
    try {
      LoraAdapters adapters(of ? of : model, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_NE(message([](auto& o) { o.rank = 0; }), "");
  EXPECT_NE(
      message([](auto& o) { o.rank = 65; }).find("64 inputs"),
      std::string::npos);
  EXPECT_EQ(message([](auto& o) { o.rank = 64; }), "");
  EXPECT_NE(message([](auto& o) { o.dropout = 1; }), "");
  EXPECT_NE(message([](auto& o) { o.dropout = -0.1; }), "");
  EXPECT_NE(message([](auto& o) { o.dropout = NAN; }), "");
  EXPECT_NE(message([](auto& o) { o.alpha = 16; }), "");
  EXPECT_NE(message([](auto& o) { o.scale = INFINITY; }), "");
  EXPECT_NE(message([](auto& o) { o.rank_stabilized = true; }), "");
  EXPECT_NE(message([](auto& o) { o.num_layers = 4; }), "");
  EXPECT_NE(message([](auto& o) { o.learning_rate_ratio = 0; }), "");
  EXPECT_NE(
      message([](auto& o) { o.keys = {"self_attn.x_proj"}; }).find("x_proj"),
      std::string::npos);
  EXPECT_NE(message([](auto& o) { o.keys = {"model.norm"}; }), "");
  EXPECT_NE(
      message([](auto& o) { o.dora = true; }, model_of(mixture_config(), true))
          .find("experts"),
      std::string::npos);
}

TEST(LoraAdapters, DropoutFollowsSeedStepAndModule) {
  ModelPtr model = model_of(llama_config(), true);
  LoraOptions options = some_layers();
  options.dropout = 0.5;
  LoraAdapters adapters(model, options);
  shake(adapters, 3);
  auto at = [&](uint64_t seed, int64_t step) {
    adapters.begin_step(seed, step);
    return logits_of(*model, adapters);
  };
  mx::array first = at(1, 0);
  EXPECT_TRUE(same_bits(at(1, 0), first));
  EXPECT_GT(relative_error(at(1, 1), first), 1e-3f);
  EXPECT_GT(relative_error(at(2, 0), first), 1e-3f);
  adapters.set_training(false);
  mx::array quiet = at(1, 0);
  EXPECT_TRUE(same_bits(at(2, 5), quiet));
  EXPECT_GT(relative_error(quiet, first), 1e-3f);
  // On average what it is without.
  adapters.set_training(true);
  mx::array x = mx::ones({400, 64}, mx::float32);
  Dropout half{.probability = 0.5, .seed = 1, .step = 2, .module = 3};
  mx::array dropped = half(x);
  EXPECT_NEAR(mx::mean(dropped).item<float>(), 1, 0.03);
  EXPECT_EQ(mx::max(dropped).item<float>(), 2);
  EXPECT_EQ(mx::min(dropped).item<float>(), 0);
  EXPECT_FALSE(same_bits(half(x, 1), dropped));
  half.module = 4;
  EXPECT_FALSE(same_bits(half(x), dropped));
}

TEST(LoraAdapters, ValuesAreRestoredAndChecked) {
  ModelPtr model = model_of(llama_config(), true);
  LoraAdapters adapters(model, some_layers());
  shake(adapters, 3);
  mx::array before = logits_of(*model, adapters);
  const std::vector<size_t> indices = {1};
  std::vector<mx::array> other = {mx::ones_like(adapters.values()[1])};
  try {
    adapters.with(indices, other, [&] {
      EXPECT_FALSE(same_bits(forward(*model), before));
      throw std::runtime_error("stop");
    });
    FAIL();
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(same_bits(logits_of(*model, adapters), before));
  auto values = adapters.values();
  values.pop_back();
  EXPECT_THROW(adapters.set_values(values), Error);
  values = adapters.values();
  values[0] = mx::transpose(values[0]);
  EXPECT_THROW(adapters.set_values(values), Error);
  values = adapters.values();
  values[0] = mx::astype(values[0], mx::float16);
  EXPECT_THROW(adapters.set_values(values), Error);
  EXPECT_TRUE(same_bits(logits_of(*model, adapters), before));
}

}  // namespace
}  // namespace mlxx::train
