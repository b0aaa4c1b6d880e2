#include "mlxx/text/special_tokens.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::text {
namespace {

using Ids = std::set<int32_t>;
using Tokens = std::vector<int32_t>;

TEST(EosIds, AreTheUnionOfAllPlaces) {
  Json config = {
      {"eos_token_id", 1},
      {"text_config", {{"eos_token_id", {7, 8}}}}};
  Json generation = {{"eos_token_id", {1, 106}}};
  EXPECT_EQ(read_eos_ids(config, generation, 200), (Ids{1, 7, 8, 106}));
}

TEST(EosIds, AnIntegerAListNullAndNothing) {
  Json none = Json::object();
  EXPECT_EQ(read_eos_ids({{"eos_token_id", 2}}, none, 10), (Ids{2}));
  EXPECT_EQ(read_eos_ids(none, {{"eos_token_id", 3}}, 10), (Ids{3}));
  EXPECT_EQ(
      read_eos_ids({{"eos_token_id", Json::array({4, 5})}}, none, 10),
      (Ids{4, 5}));
  EXPECT_EQ(read_eos_ids({{"eos_token_id", nullptr}}, none, 10), Ids{});
  EXPECT_EQ(read_eos_ids(none, none, 10), Ids{});
  EXPECT_EQ(read_eos_ids(Json(), Json(), 10), Ids{});
}

TEST(EosIds, OutsideTheVocabularyAreLeftOut) {
  Json config = {{"eos_token_id", {5, 10, 11}}};
  EXPECT_EQ(read_eos_ids(config, Json::object(), 10), (Ids{5}));
  EXPECT_EQ(read_eos_ids(config, Json::object(), 0), (Ids{5, 10, 11}));
}

TEST(EosIds, OtherTypesAreRefusedByFile) {
  for (const Json& bad :
       {Json("2"),
        Json(2.0),
        Json(-1),
        Json(true),
        Json(uint64_t{1} << 40),
        Json::object(),
        Json::array({1, "x"}),
        Json::array({Json::array({1})})}) {
    try {
      read_eos_ids(Json::object(), {{"eos_token_id", bad}}, 100);
      ADD_FAILURE() << bad << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_file);
      std::string what = error.what();
      EXPECT_NE(what.find("[generation_config.json] eos_token_id"), what.npos)
          << what;
    }
  }
}

TEST(SpecialTokensConfig, StringsAndObjects) {
  auto tokens = read_special_tokens(
      R"({"bos_token": {"content": "<s>", "lstrip": false},
          "eos_token": "</s>", "add_bos_token": false})");
  EXPECT_EQ(tokens.bos, "<s>");
  EXPECT_EQ(tokens.eos, "</s>");
  EXPECT_EQ(tokens.add_bos, std::optional<bool>(false));
  tokens = read_special_tokens(R"({"bos_token": null})");
  EXPECT_EQ(tokens.bos, "");
  EXPECT_EQ(tokens.add_bos, std::nullopt);
}

TEST(SpecialTokensConfig, OtherTypesAreRefusedByKey) {
  for (const char* text :
       {R"({"bos_token": 1})",
        R"({"bos_token": {"content": 1}})",
        R"({"bos_token": ["<s>"]})",
        R"([])",
        R"({)"}) {
    EXPECT_THROW(read_special_tokens(text), Error) << text;
  }
}

TEST(SingleBos, IsPutWhereTheTokenizerAsksForIt) {
  // The tokenizer's own post-processor decides unless the config does.
  EXPECT_EQ(with_single_bos({1, 5}, 1, std::nullopt, false), (Tokens{1, 5}));
  EXPECT_EQ(with_single_bos({5}, 1, std::nullopt, false), (Tokens{5}));
  EXPECT_EQ(with_single_bos({5}, 1, true, false), (Tokens{1, 5}));
  EXPECT_EQ(with_single_bos({1, 5}, 1, true, false), (Tokens{1, 5}));
  EXPECT_EQ(with_single_bos({1, 5}, 1, false, false), (Tokens{5}));
  EXPECT_EQ(with_single_bos({}, 1, true, false), (Tokens{1}));
  EXPECT_EQ(with_single_bos({1, 5}, std::nullopt, true, false), (Tokens{1, 5}));
}

TEST(SingleBos, IsNotDoubledForATextThatStartsWithIt) {
  EXPECT_EQ(with_single_bos({1, 1, 5}, 1, true, true), (Tokens{1, 5}));
  EXPECT_EQ(with_single_bos({1, 5}, 1, true, true), (Tokens{1, 5}));
  EXPECT_EQ(with_single_bos({1, 5}, 1, false, true), (Tokens{1, 5}));
  EXPECT_EQ(with_single_bos({1, 1, 5}, 1, std::nullopt, true), (Tokens{1, 5}));
}

}  // namespace
}  // namespace mlxx::text
