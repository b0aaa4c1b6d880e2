#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::text {
namespace {

using generate::tiny_tokenizer_json;

Json sample() {
  return Json::parse(tiny_tokenizer_json(
      {" the", "there", "hello", "日本", " wörld", "aaaa"},
      true));
}

// A member that the quick reader does not know: the file is read by the
// general one, which takes any.
std::shared_ptr<const Tokenizer> read_generally(Json file) {
  file["made_by"] = "a test";
  return Tokenizer::from_json(file.dump());
}

void expect_same(const Json& file) {
  auto quick = Tokenizer::from_json(file.dump());
  auto general = read_generally(file);
  ASSERT_EQ(quick->vocab_size(), general->vocab_size());
  for (int32_t id = 0; id < quick->vocab_size(); ++id) {
    EXPECT_EQ(quick->id_to_token(id), general->id_to_token(id));
    EXPECT_EQ(quick->is_special(id), general->is_special(id));
  }
  const std::string parts[] = {
      " the",
      "there",
      "hello",
      "日本",
      " wörld",
      "aaaaaaa",
      "<s>",
      "<en",
      "<end>"};
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (int j = 0; j < 6; ++j) {
      text += parts[random() % std::size(parts)];
    }
    for (bool special : {false, true}) {
      EncodeOptions options{
          .add_special_tokens = special,
          .parse_special = special};
      auto ids = quick->encode(text, options);
      EXPECT_EQ(ids, general->encode(text, options)) << text;
      EXPECT_EQ(quick->decode(ids, false), general->decode(ids, false));
    }
  }
}

TEST(BpeFile, QuickAndGeneralReadersMakeTheSameTokenizer) {
  Json file = sample();
  expect_same(file);
  file["model"]["ignore_merges"] = true;
  expect_same(file);
  file["model"].erase("ignore_merges");
  file.erase("truncation");
  expect_same(file);
}

TEST(BpeFile, MergesMayBeLines) {
  Json file = sample();
  auto pairs = read_generally(file);
  for (Json& merge : file["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  expect_same(file);
  EXPECT_EQ(
      Tokenizer::from_json(file.dump())->encode("hello there"),
      pairs->encode("hello there"));
}

TEST(BpeFile, AddedTokensPastTheVocabularyCount) {
  Json file = sample();
  Json token = file["added_tokens"][0];
  token["content"] = "<past>";
  token["id"] = file["added_tokens"].size() + file["model"]["vocab"].size();
  file["added_tokens"].push_back(token);
  expect_same(file);
}

TEST(BpeFile, BadFilesFailAsTheGeneralReaderSays) {
  auto message = [](const Json& file) -> std::string {
    try {
      Tokenizer::from_json(file.dump());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  auto check = [&](auto&& change) {
    Json file = sample();
    change(file);
    std::string quick = message(file);
    file["made_by"] = "a test";
    EXPECT_FALSE(quick.empty());
    EXPECT_EQ(quick, message(file));
  };
  check([](Json& f) { f["version"] = "2.0"; });
  check([](Json& f) { f["model"]["vocab"].erase("h"); });
  check([](Json& f) { f["model"]["vocab"]["h"] = -1; });
  check([](Json& f) { f["model"]["vocab"]["h"] = 1 << 25; });
  check([](Json& f) { f["model"]["merges"][1] = "a line"; });
  check([](Json& f) { f["model"]["merges"][1] = {"one"}; });
  check([](Json& f) { f["model"]["merges"] = Json::array(); });
  check([](Json& f) { f["model"]["dropout"] = 2.0; });
  check([](Json& f) { f["decoder"] = {{"type", "none"}}; });
  check([](Json& f) { f.erase("model"); });
}

}  // namespace
}  // namespace mlxx::text
