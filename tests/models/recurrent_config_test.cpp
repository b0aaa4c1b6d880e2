// Configs of recurrent and hybrid families that make no sense.
#include <gtest/gtest.h>

#include "mlxx/models/recurrent_tensors.h"
#include "tests/core/error_of.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

// The family's tiny config with `value` at `key`, in text_config if that has
// the key. Null takes the key away.
std::string error_with(const char* type, const char* key, const Json& value) {
  Json config = parse_json(find_model(type).tiny_config, "tiny");
  Json& part = config.contains("text_config") ? config["text_config"] : config;
  part[key] = value;
  FakeCheckpoint checkpoint(config);
  return error_of([&] { find_model(type).make(checkpoint); });
}

void expect_refused(const char* type, const char* key, const Json& value) {
  std::string error = error_with(type, key, value);
  EXPECT_NE(error.find(key), std::string::npos)
      << type << " " << key << ": " << error;
  EXPECT_TRUE(error.starts_with("bad_file") || error.starts_with("unsupported"))
      << error;
}

TEST(RecurrentConfig, WhatMakesNoSenseIsRefusedByName) {
  expect_refused("mamba2", "n_groups", 3);
  expect_refused("mamba2", "conv_kernel", 1);
  expect_refused("mamba2", "state_size", -1);
  expect_refused("mamba2", "time_step_limit", Json({2.0, 1.0}));
  expect_refused("mamba2", "use_conv_bias", nullptr);
  expect_refused("falcon_h1", "mamba_d_ssm", 64);
  expect_refused("falcon_h1", "mamba_n_groups", 3);
  expect_refused("granitemoehybrid", "layer_types", Json({"mamba"}));
  expect_refused("granitemoehybrid", "logits_scaling", 0);
  expect_refused("granitemoehybrid", "num_experts_per_tok", 5);
  expect_refused("lfm2", "full_attn_idxs", Json({7}));
  expect_refused("lfm2", "full_attn_idxs", Json({-1}));
  expect_refused("lfm2", "block_dim", 32);
  expect_refused("lfm2", "block_ffn_dim_multiplier", -2.0);
  expect_refused("lfm2", "conv_L_cache", 1);
  expect_refused("lfm2_moe", "num_experts_per_tok", 9);
  expect_refused("lfm2_moe", "layer_types", nullptr);
  expect_refused("nemotron_h", "hybrid_override_pattern", "M?*");
  expect_refused("nemotron_h", "hybrid_override_pattern", "");
  expect_refused("nemotron_h", "hybrid_override_pattern", Json({"M", "MM"}));
  expect_refused("nemotron_h", "n_group", 3);
  expect_refused("nemotron_h", "topk_group", 2);
  expect_refused("qwen3_5", "linear_num_value_heads", 3);
  expect_refused("qwen3_5", "linear_conv_kernel_dim", 0);
  expect_refused("qwen3_next", "linear_value_head_dim", 1 << 25);
  expect_refused("qwen3_next", "moe_intermediate_size", 0);
}

TEST(RecurrentConfig, LayersOfOtherKindsAreUnsupported) {
  for (const char* type : {"granitemoehybrid", "lfm2_moe"}) {
    std::string error =
        error_with(type, "layer_types", Json({"rwkv", "attention", "mamba"}));
    EXPECT_TRUE(error.starts_with("unsupported")) << error;
    EXPECT_NE(error.find("'rwkv'"), std::string::npos) << error;
  }
}

TEST(RecurrentConfig, StepLimitsMayBeInfiniteInTransformersSpelling) {
  auto read = [](const char* text) {
    Json json = parse_json(text, "text");
    return read_step_limits(JsonView(json, "config.json"), {1.0f, 2.0f});
  };
  EXPECT_EQ(read("{}"), (std::pair{1.0f, 2.0f}));
  EXPECT_EQ(read(R"({"time_step_limit": [0.5, 3]})"), (std::pair{0.5f, 3.0f}));
  EXPECT_EQ(
      read(R"({"time_step_limit": [0, {"__float__": "Infinity"}]})"),
      (std::pair{0.0f, kNoLimit}));
  for (const char* text :
       {R"({"time_step_limit": [0]})",
        R"({"time_step_limit": 3})",
        R"({"time_step_limit": [-1, 3]})",
        R"({"time_step_limit": [0, {"__float__": "NaN"}]})",
        R"({"time_step_limit": [0, "3"]})"}) {
    EXPECT_ERROR(read(text), "bad_file", "time_step_limit");
  }
}

}  // namespace
}  // namespace mlxx::models
