#include "mlxx/embed/sentence_modules.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::embed {
namespace {

class ModulesFolder : public TemporaryFolder {
 public:
  void write_json(const std::string& name, const Json& json) {
    write(name, json.dump());
  }
  // Modules in folders N_Kind, the first one in the folder itself.
  void write_list(const std::vector<std::string>& kinds) {
    Json list = Json::array();
    for (const auto& kind : kinds) {
      size_t i = list.size();
      list.push_back(
          {{"idx", i},
           {"name", std::to_string(i)},
           {"path", i == 0 ? "" : fmt::format("{}_{}", i, kind)},
           {"type", "sentence_transformers.models." + kind}});
    }
    write_json("modules.json", list);
  }
};

TEST(SentenceModules, AFolderWithoutAnySaysNothing) {
  TemporaryFolder folder;
  auto modules = read_sentence_modules(folder.path());
  EXPECT_FALSE(modules.has_list);
  EXPECT_EQ(modules.transformer, folder.path());
  EXPECT_FALSE(modules.pooling);
  EXPECT_EQ(modules.max_tokens, 0);
}

TEST(SentenceModules, TheWholeOfARealModel) {
  ModulesFolder folder;
  folder.write_list({"Transformer", "Pooling", "Dense", "Dense", "Normalize"});
  folder.write_json(
      "1_Pooling/config.json",
      {{"word_embedding_dimension", 768},
       {"pooling_mode_cls_token", false},
       {"pooling_mode_mean_tokens", true},
       {"include_prompt", true}});
  folder.write_json(
      "sentence_bert_config.json",
      {{"max_seq_length", 2048}, {"do_lower_case", true}});
  folder.write_json(
      "config_sentence_transformers.json",
      {{"prompts", {{"query", "task: search result | query: "}}},
       {"default_prompt_name", "query"}});
  auto modules = read_sentence_modules(folder.path());
  EXPECT_TRUE(modules.has_list);
  EXPECT_EQ(modules.pooling, Pooling::mean);
  EXPECT_EQ(modules.pooled_size, 768);
  EXPECT_TRUE(modules.pools_prompt);
  EXPECT_EQ(
      modules.dense,
      (std::vector{folder.path() / "2_Dense", folder.path() / "3_Dense"}));
  EXPECT_TRUE(modules.normalizes);
  EXPECT_EQ(modules.max_tokens, 2048);
  EXPECT_TRUE(modules.lower_case);
  ASSERT_EQ(modules.prompts.size(), 1u);
  EXPECT_EQ(modules.prompts[0].second, "task: search result | query: ");
  EXPECT_EQ(modules.default_prompt, "query");
}

TEST(SentenceModules, NewerFilesNameThePooling) {
  for (auto [name, pooling] :
       {std::pair{"cls", Pooling::cls},
        {"mean", Pooling::mean},
        {"lasttoken", Pooling::last_token}}) {
    ModulesFolder folder;
    folder.write_list({"Transformer", "Pooling"});
    folder.write_json(
        "1_Pooling/config.json",
        {{"embedding_dimension", 8}, {"pooling_mode", name}});
    auto modules = read_sentence_modules(folder.path());
    EXPECT_EQ(modules.pooling, pooling);
    EXPECT_EQ(modules.pooled_size, 8);
    EXPECT_FALSE(modules.normalizes);
    EXPECT_EQ(to_string(pooling), name);
  }
}

TEST(SentenceModules, OtherPoolingsAreRefusedByName) {
  for (const char* key : {"max_tokens", "mean_sqrt_len_tokens"}) {
    ModulesFolder folder;
    folder.write_list({"Transformer", "Pooling"});
    folder.write_json(
        "1_Pooling/config.json",
        {{fmt::format("pooling_mode_{}", key), true}});
    EXPECT_ERROR(
        read_sentence_modules(folder.path()),
        "unsupported",
        "is not mean, cls or lasttoken");
  }
  ModulesFolder folder;
  folder.write_list({"Transformer", "Pooling"});
  folder.write_json(
      "1_Pooling/config.json",
      {{"pooling_mode", "weightedmean"}});
  EXPECT_ERROR(
      read_sentence_modules(folder.path()),
      "unsupported",
      "pooling 'weightedmean'");
  folder.write_json(
      "1_Pooling/config.json",
      {{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}});
  EXPECT_ERROR(
      read_sentence_modules(folder.path()),
      "unsupported",
      "2 poolings side by side");
}

TEST(SentenceModules, OtherModulesAndOrdersAreRefused) {
  using Kinds = std::vector<std::string>;
  for (const auto& [kinds, text] :
       {std::pair{Kinds{"Transformer"}, "has no Pooling"},
        {Kinds{"WordEmbeddings", "Pooling"}, "models.WordEmbeddings"},
        {Kinds{"Transformer", "Pooling", "LSTM"}, "module 2 is"},
        {Kinds{"Transformer", "Pooling", "Normalize", "Dense"}, "module 3"},
        {Kinds{"Pooling", "Transformer"}, "module 0"}}) {
    ModulesFolder folder;
    folder.write_list(kinds);
    folder.write_json("1_Pooling/config.json", {{"pooling_mode", "mean"}});
    EXPECT_ERROR(read_sentence_modules(folder.path()), "unsupported", text);
  }
}

TEST(SentenceModules, DamagedFilesAreNamed) {
  ModulesFolder folder;
  folder.write("modules.json", "{}");
  EXPECT_ERROR(
      read_sentence_modules(folder.path()),
      "bad_file",
      "is no list of modules");
  folder.write_json(
      "modules.json",
      {{{"path", "../../etc"}, {"type", "x.Transformer"}}});
  EXPECT_ERROR(
      read_sentence_modules(folder.path()),
      "bad_file",
      "no plain name but '../../etc'");
  folder.write_list({"Transformer", "Pooling"});
  EXPECT_ERROR(
      read_sentence_modules(folder.path()),
      "not_found",
      "1_Pooling/config.json");
  folder.write_json("1_Pooling/config.json", {{"pooling_mode", 3}});
  EXPECT_ERROR(
      read_sentence_modules(folder.path()),
      "bad_file",
      "pooling_mode");
  folder.write_json("1_Pooling/config.json", Json::object());
  folder.write_json(
      "config_sentence_transformers.json",
      {{"prompts", Json::object()}, {"default_prompt_name", "query"}});
  EXPECT_ERROR(
      read_sentence_modules(folder.path()),
      "bad_file",
      "names 'query', which is not among the prompts");
}

TEST(DenseModule, ReadsWhatItCanCompute) {
  ModulesFolder folder;
  Json config = {
      {"in_features", 8},
      {"out_features", 4},
      {"bias", false},
      {"activation_function", "torch.nn.modules.linear.Identity"}};
  folder.write_json("config.json", config);
  auto dense = read_dense_module(folder.path());
  EXPECT_EQ(dense.in_features, 8);
  EXPECT_EQ(dense.out_features, 4);
  EXPECT_FALSE(dense.bias);
  EXPECT_FALSE(dense.tanh);
  for (const auto& [key, value, text] :
       {std::tuple<std::string, Json, std::string>{
            "activation_function",
            "torch.nn.modules.activation.GELU",
            "is not Identity or Tanh"},
        {"module_input_name", "token_embeddings", "not the text's vector"},
        {"use_residual", true, "use_residual"}}) {
    Json changed = config;
    changed[key] = value;
    folder.write_json("config.json", changed);
    EXPECT_ERROR(read_dense_module(folder.path()), "unsupported", text);
  }
}

}  // namespace
}  // namespace mlxx::embed
