// Configs and checkpoints of families with experts that contradict themselves
// are refused by name.
#include <gtest/gtest.h>

#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

Json tiny(const std::string& type) {
  return parse_json(find_model(type).tiny_config, "tiny");
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_TRUE(
        error.kind() == ErrorKind::bad_file ||
        error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no error";
}

TEST(ExpertConfigs, ContradictionsNameTheirKey) {
  struct Case {
    const char* model_type;
    const char* key;
    Json value;
  };
  const Case cases[] = {
      {"mixtral", "num_experts_per_tok", 5},
      {"mixtral", "num_local_experts", 0},
      {"mixtral", "num_local_experts", "many"},
      {"qwen3_moe", "num_experts_per_tok", 0},
      {"qwen3_moe", "decoder_sparse_step", 0},
      {"qwen2_moe", "shared_expert_intermediate_size", -1},
      {"granitemoe", "logits_scaling", nullptr},
      {"glm4_moe", "n_group", 3},
      {"glm4_moe", "n_group", 8},
      {"glm4_moe", "topk_group", 3},
      {"glm4_moe", "n_shared_experts", 100000},
      {"glm4_moe", "topk_method", "greedy"},
      {"deepseek_v3", "scoring_func", "softmax"},
      {"deepseek_v3", "qk_rope_head_dim", 15},
      {"deepseek_v3", "v_head_dim", 1 << 20},
      {"deepseek_v3", "kv_lora_rank", nullptr},
      {"minimax", "rotary_dim", 64},
      {"minimax", "rotary_dim", 7},
      {"llama4_text", "no_rope_layers", Json::array({1, 1})},
      {"gpt_oss", "sliding_window", 0},
      {"gpt_oss", "layer_types", Json::array({"full_attention"})},
  };
  for (const Case& c : cases) {
    Json config = tiny(c.model_type);
    config[c.key] = c.value;
    FakeCheckpoint checkpoint(config);
    auto error = error_of([&] { find_model(c.model_type).make(checkpoint); });
    EXPECT_NE(error.find(c.key), std::string::npos)
        << c.model_type << " " << c.key << ": " << error;
  }
  for (auto [key, value] :
       {std::pair{"num_experts_per_tok", 2},
        {"floor_scale", 0},
        {"attention_chunk_size", 0}}) {
    Json config = tiny("llama4");
    config["text_config"][key] = value;
    FakeCheckpoint checkpoint(config);
    auto error = error_of([&] { find_model("llama4").make(checkpoint); });
    EXPECT_NE(error.find("config.json"), std::string::npos) << error;
  }
}

// [heads * (plain + value), latent] of a published file.
TEST(LatentHeads, AreSplitFromOneMatrixOrRefused) {
  Json config = tiny("deepseek_v3");
  constexpr auto kBoth = "model.layers.1.self_attn.kv_b_proj.weight";
  auto rewritten = [&](const FakeCheckpoint& checkpoint) {
    return rewrite_checkpoint(find_model("deepseek_v3"), checkpoint);
  };
  mx::array both = mx::random::normal({4 * (32 + 32), 32});
  FakeCheckpoint checkpoint(config);
  checkpoint.add(kBoth, both);
  auto tensors = rewritten(checkpoint);
  mx::array heads = mx::reshape(both, {4, 64, 32});
  auto part = [&](const char* name) {
    return tensors
        ->load(std::string("model.layers.1.self_attn.") + name + ".weight", {})
        .weight;
  };
  EXPECT_TRUE(mx::array_equal(
                  part("embed_q"),
                  mx::swapaxes(mx::slice(heads, {0, 0, 0}, {4, 32, 32}), 1, 2))
                  .item<bool>());
  EXPECT_TRUE(mx::array_equal(
                  part("unembed_out"),
                  mx::slice(heads, {0, 32, 0}, {4, 64, 32}))
                  .item<bool>());

  FakeCheckpoint odd(config);
  odd.add(kBoth, mx::zeros({4 * (32 + 32) + 1, 32}));
  EXPECT_NE(error_of([&] { rewritten(odd); }).find(kBoth), std::string::npos);

  config["qk_nope_head_dim"] = 16;
  FakeCheckpoint narrow(config);
  narrow.add_quantized(
      kBoth,
      mx::zeros({4 * (16 + 32), 32}),
      {32, 4, "affine"});
  EXPECT_NE(
      error_of([&] { rewritten(narrow); }).find(kBoth),
      std::string::npos);
}

TEST(FurtherLayers, AreDroppedByTheirNumber) {
  FakeCheckpoint checkpoint(tiny("glm4_moe"));
  for (const char* name :
       {"model.layers.2.input_layernorm.weight",
        "model.layers.3.enorm.weight",
        "model.layers.30.enorm.weight",
        "model.layers.x.weight",
        "model.norm.weight"}) {
    checkpoint.add(name, mx::zeros({8}));
  }
  auto tensors = rewrite_checkpoint(find_model("glm4_moe"), checkpoint);
  std::vector<std::string> names;
  for (const auto& tensor : tensors->tensors()) {
    names.push_back(tensor.name);
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "model.layers.2.input_layernorm.weight",
          "model.layers.x.weight",
          "model.norm.weight"}));
}

}  // namespace
}  // namespace mlxx::models
