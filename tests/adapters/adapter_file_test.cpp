#include "mlxx/adapters/adapter_file.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/adapters/adapter_writer.h"

namespace mlxx::adapters {
namespace {

std::vector<LowRank> two_changes(bool dora = false) {
  return {
      random_change("model.layers.0.mlp.up_proj", 64, 128, 4, 1, dora),
      random_change("model.layers.1.self_attn.q_proj", 64, 64, 4, 2, dora)};
}

bool same_values(const mx::array& a, const mx::array& b) {
  return mx::array_equal(a, b).item<bool>();
}

std::string error_of(const std::filesystem::path& folder) {
  try {
    read_adapter(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(AdapterFile, BothFormatsSayTheSame) {
  for (bool dora : {false, true}) {
    auto changes = two_changes(dora);
    TemporaryFolder mlx;
    write_mlx_lm(mlx.path(), changes);
    TemporaryFolder peft;
    write_peft(peft.path(), changes, peft_config(changes));
    for (const auto* folder : {&mlx, &peft}) {
      AdapterFile file = read_adapter(folder->path());
      EXPECT_EQ(file.format, folder == &mlx ? "mlx-lm" : "peft");
      ASSERT_EQ(file.modules.size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(file.modules[i].module, changes[i].module);
        EXPECT_TRUE(same_values(file.modules[i].a, changes[i].a));
        EXPECT_TRUE(same_values(file.modules[i].b, changes[i].b));
        EXPECT_FLOAT_EQ(file.modules[i].scale, 2.0f);
        ASSERT_EQ(file.modules[i].magnitude.has_value(), dora);
        if (dora) {
          EXPECT_TRUE(
              same_values(*file.modules[i].magnitude, *changes[i].magnitude));
        }
      }
    }
  }
}

TEST(AdapterFile, ScalesOfPeft) {
  auto changes = two_changes();
  changes[1] = random_change("model.layers.1.self_attn.q_proj", 64, 64, 2, 3);
  Json config = peft_config(changes);
  config["lora_alpha"] = 8;
  config["rank_pattern"] = {{"q_proj", 2}};
  config["alpha_pattern"] = {{"layers.1.self_attn.q_proj", 6}, {"o_proj", 99}};
  TemporaryFolder folder;
  write_peft(folder.path(), changes, config);
  AdapterFile file = read_adapter(folder.path());
  EXPECT_FLOAT_EQ(file.modules[0].scale, 2);
  EXPECT_FLOAT_EQ(file.modules[1].scale, 3);
  config["use_rslora"] = true;
  write_config(folder.path(), config);
  file = read_adapter(folder.path());
  EXPECT_FLOAT_EQ(file.modules[0].scale, 4);
  EXPECT_FLOAT_EQ(file.modules[1].scale, 6 / std::sqrt(2.0f));
}

TEST(AdapterFile, ScalesOfMlxLm) {
  auto changes = two_changes();
  TemporaryFolder folder;
  write_mlx_lm(folder.path(), changes);
  write_config(
      folder.path(),
      {{"lora_parameters", {{"rank", 4}, {"alpha", 12}}}});
  EXPECT_FLOAT_EQ(read_adapter(folder.path()).modules[0].scale, 3);
  write_config(folder.path(), {{"lora_parameters", {{"rank", 4}}}});
  EXPECT_NE(error_of(folder.path()).find("scale"), std::string::npos);
}

TEST(AdapterFile, OptionsThatAreNotUsedAreRefusedByName) {
  auto changes = two_changes();
  TemporaryFolder folder;
  const std::pair<const char*, Json> options[] = {
      {"modules_to_save", {"lm_head"}},
      {"layer_replication", Json::parse("[[0, 1]]")},
      {"lora_bias", true},
      {"bias", "all"},
      {"trainable_token_indices", {1}},
      {"target_parameters", {"experts.down_proj"}},
      {"init_lora_weights", "pissa_niter_4"},
      {"rank_pattern", {{"a.*b", 3}}},
      {"alora_invocation_tokens", {5}},
      {"peft_type", "LOHA"},
  };
  for (const auto& [key, value] : options) {
    Json config = peft_config(changes);
    config[key] = value;
    write_peft(folder.path(), changes, config);
    EXPECT_NE(error_of(folder.path()).find(key), std::string::npos)
        << error_of(folder.path());
  }
  write_peft(folder.path(), changes, peft_config(changes));
  EXPECT_EQ(error_of(folder.path()), "");
}

TEST(AdapterFile, WhatDoesNotFitIsRefused) {
  TemporaryFolder folder;
  EXPECT_NE(error_of(folder.path()), "");
  auto changes = two_changes();
  write_mlx_lm(folder.path(), changes);
  EXPECT_EQ(error_of(folder.path()), "");
  auto with = [&](const SafetensorsArrays& arrays) {
    write_safetensors(folder.path() / "adapters.safetensors", arrays);
    return error_of(folder.path());
  };
  mx::array a = changes[0].a;
  mx::array b = changes[0].b;
  EXPECT_EQ(with({{"x.lora_a", a}, {"x.lora_b", b}}), "");
  EXPECT_NE(with({}), "");
  EXPECT_NE(with({{"x.lora_a", a}}), "");
  EXPECT_NE(with({{"x.lora_a", mx::transpose(a)}, {"x.lora_b", b}}), "");
  EXPECT_NE(with({{"x.lora_a", a}, {"x.lora_b", b}, {"y.weight", b}}), "");
  EXPECT_NE(with({{"x.lora_a", a}, {"x.lora_b", b}, {"lora_a", a}}), "");
  EXPECT_NE(with({{"x.lora_a", a}, {"x.lora_b", b}, {"x.m", a}}), "");
  mx::array infinite =
      mx::multiply(a, mx::array(std::numeric_limits<float>::infinity()));
  EXPECT_NE(with({{"x.lora_a", infinite}, {"x.lora_b", b}}), "");
  mx::array whole = mx::astype(a, mx::int32);
  EXPECT_NE(with({{"x.lora_a", whole}, {"x.lora_b", b}}), "");
  EXPECT_EQ(with({{"x.lora_a", a}, {"x.lora_b", b}}), "");
  for (const char* config :
       {"",
        "[]",
        "{}",
        R"({"lora_parameters":{"rank":0,"scale":1}})",
        R"({"lora_parameters":{"rank":1e9,"scale":1}})",
        R"({"lora_parameters":{"rank":5,"scale":1}})",
        R"({"lora_parameters":{"rank":4,"scale":"x"}})",
        R"({"fine_tune_type":"full","lora_parameters":{"rank":4,"scale":1}})",
        R"({"fine_tune_type":"dora","lora_parameters":{"rank":4,"scale":1}})",
        R"({"peft_type":"LORA","r":4})"}) {
    std::ofstream(folder.path() / "adapter_config.json") << config;
    EXPECT_NE(error_of(folder.path()), "") << config;
  }
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Damaged files give an error of the library, or the adapter; nothing else.
TEST(AdapterFile, DamagedFilesNeverDoHarm) {
  auto changes = two_changes(true);
  for (bool peft : {false, true}) {
    TemporaryFolder folder;
    if (peft) {
      write_peft(folder.path(), changes, peft_config(changes));
    } else {
      write_mlx_lm(folder.path(), changes);
    }
    std::mt19937 random(4);
    auto weights = folder.path() /
        (peft ? "adapter_model.safetensors" : "adapters.safetensors");
    int refused = 0;
    for (const auto& path : {weights, folder.path() / "adapter_config.json"}) {
      const std::string whole = bytes_of(path);
      for (int round = 0; round < 150; ++round) {
        std::string damaged = whole;
        size_t head = std::min<size_t>(damaged.size(), 600);
        for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
          damaged[random() % head] = static_cast<char>(random());
        }
        if (round % 5 == 0) {
          damaged.resize(random() % damaged.size());
        }
        std::ofstream(path, std::ios::binary) << damaged;
        refused += error_of(folder.path()).empty() ? 0 : 1;
      }
      std::ofstream(path, std::ios::binary) << whole;
      EXPECT_EQ(error_of(folder.path()), "");
    }
    EXPECT_GT(refused, 200);
  }
}

}  // namespace
}  // namespace mlxx::adapters
