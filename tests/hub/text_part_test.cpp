#include "mlxx/hub/text_part.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/core/safetensors_writer.h"
#include "mlxx/hub/resident_form.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::hub {
namespace {

class TextPart : public ::testing::Test {
 protected:
  std::shared_ptr<const Checkpoint> open(
      const std::string& config,
      const std::vector<std::string>& names) {
    folder_.write("config.json", config);
    std::vector<std::pair<std::string, mx::array>> arrays;
    for (const auto& name : names) {
      arrays.emplace_back(name, mx::ones({2, 4, 6}));
    }
    write_safetensors(folder_.path() / "model.safetensors", arrays);
    return open_checkpoint(folder_.path());
  }
  static std::vector<std::string> names(const Checkpoint& model) {
    std::vector<std::string> out;
    for (const auto& tensor : model.tensors()) {
      out.push_back(tensor.name);
    }
    return out;
  }
  TemporaryFolder folder_;
};

using Names = std::vector<std::string>;

TEST_F(TextPart, BothLayoutsOfNamesAreThoseOfTheTextModel) {
  const std::string config = R"({"model_type":"gemma3",
      "architectures":["Gemma3ForConditionalGeneration"],
      "eos_token_id":[1,106],"text_config":{"model_type":"gemma3_text",
      "hidden_size":2560,"num_hidden_layers":34}})";
  const Names expected{
      "lm_head.weight",
      "model.layers.0.a.weight",
      "model.norm.weight"};
  auto old = open(
      config,
      {"language_model.lm_head.weight",
       "language_model.model.layers.0.a.weight",
       "language_model.model.norm.weight",
       "multi_modal_projector.x",
       "vision_tower.vision_model.y"});
  EXPECT_EQ(names(*old), expected);
  ASSERT_EQ(old->dropped().size(), 2u);
  EXPECT_EQ(old->dropped()[0].info.name, "multi_modal_projector.x");
  EXPECT_EQ(old->dropped()[0].reason, "not of the language model");
  auto other = open(
      config,
      {"lm_head.weight",
       "model.language_model.layers.0.a.weight",
       "model.language_model.norm.weight",
       "model.vision_tower.y",
       "model.embed_vision.x",
       "model.audio_tower.z"});
  EXPECT_EQ(names(*other), expected);
  EXPECT_EQ(other->dropped().size(), 3u);
  EXPECT_EQ(
      other->load("model.norm.weight", {}).weight.shape(),
      (mx::Shape{2, 4, 6}));
  // What the config leaves to the class that reads it.
  const Json& text = old->config();
  EXPECT_EQ(text["model_type"], "gemma3_text");
  EXPECT_EQ(text["hidden_size"], 2560);
  EXPECT_EQ(text["vocab_size"], 262208);
  EXPECT_EQ(text["num_attention_heads"], 8);
  EXPECT_EQ(text["num_key_value_heads"], 4);
  EXPECT_EQ(text["eos_token_id"], Json({1, 106}));
  EXPECT_EQ(text["architectures"][0], "Gemma3ForConditionalGeneration");
}

TEST_F(TextPart, TheFamilyOfTheTextDecides) {
  auto type = [&](const std::string& config) {
    return open(config, {"model.norm.weight"})->config()["model_type"];
  };
  EXPECT_EQ(
      type(
          R"({"model_type":"mistral3","text_config":{"model_type":"mistral"}})"),
      "mistral");
  EXPECT_EQ(
      type(
          R"({"model_type":"mistral3","text_config":{"model_type":"ministral3"}})"),
      "ministral3");
  EXPECT_EQ(
      type(
          R"({"model_type":"qwen3_vl","text_config":{"model_type":"qwen3_vl_text"}})"),
      "qwen3");
  EXPECT_EQ(type(R"({"model_type":"gemma4","text_config":{}})"), "gemma4_text");
  // Others, and configs that are the text's already, stay.
  EXPECT_EQ(type(R"({"model_type":"llama","text_config":{}})"), "llama");
  EXPECT_EQ(type(R"({"model_type":"qwen3_vl","hidden_size":4})"), "qwen3_vl");
}

TEST_F(TextPart, TheFlagForTheHeadComesFromTheTextFirst) {
  auto tied = [&](const std::string& config) {
    return open(config, {"model.norm.weight"})
        ->config()
        .value("tie_word_embeddings", Json());
  };
  EXPECT_EQ(
      tied(R"({"model_type":"gemma3","tie_word_embeddings":false,
               "text_config":{"tie_word_embeddings":true}})"),
      true);
  EXPECT_EQ(
      tied(R"({"model_type":"qwen3_vl","tie_word_embeddings":true,
               "text_config":{}})"),
      true);
  EXPECT_EQ(tied(R"({"model_type":"mistral3","text_config":{}})"), false);
}

TEST_F(TextPart, ExpertsOfQwenAreTurned) {
  auto model = open(
      R"({"model_type":"qwen3_vl_moe","text_config":{}})",
      {"model.language_model.layers.3.mlp.experts.gate_up_proj",
       "model.language_model.layers.3.mlp.experts.down_proj",
       "model.visual.blocks.0.x"});
  EXPECT_EQ(
      names(*model),
      (Names{
          "model.layers.3.mlp.switch_mlp.down_proj.weight",
          "model.layers.3.mlp.switch_mlp.gate_proj.weight",
          "model.layers.3.mlp.switch_mlp.up_proj.weight"}));
  EXPECT_EQ(model->tensors()[0].shape, (std::vector<int64_t>{2, 6, 4}));
  EXPECT_EQ(model->tensors()[1].shape, (std::vector<int64_t>{2, 3, 4}));
}

TEST_F(TextPart, ACheckpointWithoutLanguageIsNamed) {
  EXPECT_ERROR(
      open(R"({"model_type":"gemma3","text_config":{}})", {"vision_tower.x"}),
      "bad_file",
      "no tensors of a language model in this gemma3");
  EXPECT_ERROR(
      open(R"({"model_type":"gemma3","text_config":[]})", {"model.x"}),
      "bad_file",
      "text_config] must be an object");
}

TEST(ResidentForm, WhatMlxCannotHoldIsCountedAsItWillBe) {
  auto info = [](const char* stored,
                 uint64_t nbytes,
                 std::optional<Quantization> q,
                 const char* loads_as = "") {
    return TensorInfo{
        .name = "w",
        .shape = {512, 1024},
        .stored = stored,
        .nbytes = nbytes,
        .quantization = std::move(q),
        .loads_as = loads_as};
  };
  constexpr uint64_t kCount = 512 * 1024;
  auto dense = resident_form(info("BF16", kCount * 2, {}), "safetensors");
  EXPECT_EQ(dense.name, "BF16");
  EXPECT_EQ(dense.bytes, kCount * 2);
  auto q6 = resident_form(info("Q6_K", kCount / 256 * 210, {}, "F32"), "gguf");
  EXPECT_EQ(q6.name, "F32");
  EXPECT_EQ(q6.bytes, kCount * 4);
  auto q4 = resident_form(
      info("Q4_K", kCount / 256 * 144, Quantization{32, 4, "affine"}),
      "gguf");
  EXPECT_EQ(q4.name, "4-bit affine in groups of 32");
  EXPECT_EQ(q4.bytes, kCount / 2 + kCount / 32 * 8);
  auto q8 = resident_form(
      info("Q8_0", kCount / 32 * 34, Quantization{32, 8, "affine"}),
      "gguf");
  EXPECT_EQ(q8.bytes, kCount + kCount / 32 * 4);
  auto fp8 = resident_form(info("F8_E4M3", kCount, {}, "BF16"), "safetensors");
  EXPECT_EQ(fp8.bytes, kCount * 2);
  auto own = resident_form(
      info("U32 affine", 12345, Quantization{64, 4, "affine"}),
      "safetensors");
  EXPECT_EQ(own.bytes, 12345u);
}

}  // namespace
}  // namespace mlxx::hub
