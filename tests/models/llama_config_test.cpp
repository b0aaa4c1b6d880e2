#include <gtest/gtest.h>

#include "mlxx/base/log.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

Json small_config() {
  return parse_json(
      R"({"model_type":"llama","vocab_size":64,"hidden_size":64,
          "intermediate_size":64,"num_hidden_layers":2,
          "num_attention_heads":4,"rms_norm_eps":1e-5,
          "tie_word_embeddings":false})",
      "config.json");
}

mx::array logits_of(const hub::Checkpoint& checkpoint) {
  auto model = load_model(checkpoint);
  int ids[] = {1, 2, 3, 4, 5};
  auto cache = model->make_cache({});
  return model->forward(mx::array(ids, {1, 5}, mx::int32), cache);
}

// Warnings of one test.
class LlamaConfig : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::warning) {
        warnings_.emplace_back(line);
      }
    });
  }
  void TearDown() override {
    set_log_sink({});
  }
  std::vector<std::string> warnings_;
};

FakeCheckpoint without_head(Json config) {
  auto checkpoint = random_checkpoint(config);
  checkpoint.remove("lm_head.weight");
  return checkpoint;
}

FakeCheckpoint with_embedding_as_head() {
  auto checkpoint = random_checkpoint(small_config());
  checkpoint.add(
      "lm_head.weight",
      checkpoint.load("model.embed_tokens.weight", {}).weight);
  return checkpoint;
}

TEST_F(LlamaConfig, TiedWithTheSameHeadDropsItSilently) {
  auto checkpoint = with_embedding_as_head();
  mx::array expected = logits_of(checkpoint);
  checkpoint.mutable_config()["tie_word_embeddings"] = true;
  EXPECT_LT(relative_error(logits_of(checkpoint), expected), 1e-5);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(LlamaConfig, TiedWithAnotherHeadWarnsAndUsesTheEmbedding) {
  auto checkpoint = random_checkpoint(small_config());
  checkpoint.mutable_config()["tie_word_embeddings"] = true;
  mx::array expected = logits_of(with_embedding_as_head());
  EXPECT_LT(relative_error(logits_of(checkpoint), expected), 1e-5);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("differs"), std::string::npos);
}

TEST_F(LlamaConfig, UntiedWithoutAHeadTiesWithAWarning) {
  auto checkpoint = without_head(small_config());
  mx::array expected = logits_of(with_embedding_as_head());
  EXPECT_LT(relative_error(logits_of(checkpoint), expected), 1e-5);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("lm_head.weight"), std::string::npos);
}

TEST_F(LlamaConfig, NestedFlagWins) {
  auto checkpoint = without_head(small_config());
  checkpoint.mutable_config()["text_config"] = {{"tie_word_embeddings", true}};
  logits_of(checkpoint);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(LlamaConfig, WithoutAFlagThePresenceOfAHeadDecides) {
  auto checkpoint = random_checkpoint(small_config());
  mx::array untied = logits_of(checkpoint);
  checkpoint.mutable_config().erase("tie_word_embeddings");
  EXPECT_TRUE(same_bits(logits_of(checkpoint), untied));
  checkpoint.remove("lm_head.weight");
  EXPECT_EQ(logits_of(checkpoint).shape(-1), 64);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(LlamaConfig, TiedEmbeddingMayBeQuantized) {
  Json config = small_config();
  config["tie_word_embeddings"] = true;
  auto checkpoint =
      random_checkpoint(config, hub::Quantization{32, 8, "affine"});
  EXPECT_EQ(logits_of(checkpoint).shape(), (mx::Shape{1, 5, 64}));
}

TEST_F(LlamaConfig, RopeOfNewAndOldKeysIsTheSame) {
  Json scaling = {{"rope_type", "linear"}, {"factor", 2.0}};
  auto checkpoint = random_checkpoint(small_config());
  mx::array plain = logits_of(checkpoint);
  checkpoint.mutable_config()["rope_theta"] = 5000.0;
  checkpoint.mutable_config()["rope_scaling"] = scaling;
  mx::array old_keys = logits_of(checkpoint);
  checkpoint.mutable_config().erase("rope_theta");
  checkpoint.mutable_config().erase("rope_scaling");
  scaling["rope_theta"] = 5000.0;
  checkpoint.mutable_config()["rope_parameters"] = scaling;
  EXPECT_TRUE(same_bits(logits_of(checkpoint), old_keys));
  EXPECT_GT(relative_error(old_keys, plain), 1e-3);
}

TEST_F(LlamaConfig, ContradictionsAreRefusedByName) {
  struct Change {
    const char* key;
    Json value;
    const char* word;
  };
  for (const Change& change : {
           Change{"num_key_value_heads", 3, "'num_key_value_heads'"},
           Change{"num_hidden_layers", 0, "'num_hidden_layers'"},
           Change{"num_hidden_layers", 2000000000, "'num_hidden_layers'"},
           Change{"hidden_size", -64, "'hidden_size'"},
           Change{"hidden_size", "64", "'hidden_size'"},
           Change{"rms_norm_eps", nullptr, "'rms_norm_eps'"},
           Change{"vocab_size", 1e30, "'vocab_size'"},
           Change{"hidden_act", "gelu", "'gelu'"},
           Change{
               "layer_types",
               Json::array({"full_attention"}),
               "'layer_types'"},
           Change{
               "layer_types",
               Json::array({"full_attention", "linear_attention"}),
               "'linear_attention'"},
           Change{
               "layer_types",
               Json::array({"full_attention", "sliding_attention"}),
               "'sliding_window'"},
           Change{"head_dim", 15, "rope"},
           Change{"rope_theta", -1, "rope"},
       }) {
    auto checkpoint = random_checkpoint(small_config());
    checkpoint.mutable_config()[change.key] = change.value;
    try {
      load_model(checkpoint);
      ADD_FAILURE() << change.key << " " << change.value;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(change.word), std::string::npos)
          << error.what();
    }
  }
}

TEST_F(LlamaConfig, WindowWithoutLayerTypesHasNoEffect) {
  auto checkpoint = random_checkpoint(small_config());
  mx::array expected = logits_of(checkpoint);
  checkpoint.mutable_config()["sliding_window"] = 2;
  EXPECT_TRUE(same_bits(logits_of(checkpoint), expected));
  checkpoint.mutable_config()["layer_types"] = {
      "sliding_attention",
      "sliding_attention"};
  EXPECT_GT(relative_error(logits_of(checkpoint), expected), 1e-3);
}

TEST_F(LlamaConfig, CacheLimitBelowTheKeptTokensIsRefused) {
  auto model = load_model(random_checkpoint(small_config()));
  EXPECT_THROW(model->make_cache({.max_kv_size = 4}), Error);
  EXPECT_NO_THROW(model->make_cache({.max_kv_size = 5}));
}

}  // namespace
}  // namespace mlxx::models
