#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mlxx/hub/content_hash.h"
#include "mlxx/hub/file_selection.h"
#include "mlxx/hub/model_name.h"
#include "tests/hub_net/hub_test.h"

// Names of models and files, and which files of a repository are taken.

namespace mlxx::hub {

namespace {

RepoListing listing_of(const std::vector<std::string>& names) {
  RepoListing listing;
  for (const std::string& name : names) {
    listing.files.push_back({.name = name, .size = 1, .hash = {}});
  }
  return listing;
}

std::vector<std::string> chosen(
    const std::vector<std::string>& names,
    const std::string& model = "org/m",
    const FileChoice& choice = {}) {
  std::vector<std::string> result;
  for (const RepoFile& file :
       choose_files(listing_of(names), *parse_repo_name(model), choice)) {
    result.push_back(file.name);
  }
  return result;
}

using Names = std::vector<std::string>;

TEST(RepoNameTest, ReadsRevisionAndFile) {
  auto name = parse_repo_name("mlx-community/Llama-3.2_1B@refs/pr/1:a/b.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->repo, "mlx-community/Llama-3.2_1B");
  EXPECT_EQ(name->revision, "refs/pr/1");
  EXPECT_EQ(name->file, "a/b.gguf");
  EXPECT_EQ(name->text(), "mlx-community/Llama-3.2_1B@refs/pr/1:a/b.gguf");
  EXPECT_EQ(parse_repo_name("o/m")->revision_or_main(), "main");
}

TEST(RepoNameTest, RefusesOtherForms) {
  for (const char* text :
       {"",        "model",    "/m",   "o/",       "o/m/x",
        "../m",    "o/..",     "o/.m", "o/m--n",   "o/m..n",
        "o/m.git", "-o/m",     "o/m@", "o/m@../x", "o/m@/etc",
        "o/m:",    "o/m:../x", "o /m", "o/m\n",    "\xc3\xa9/m"}) {
    EXPECT_FALSE(parse_repo_name(text)) << text;
  }
  EXPECT_FALSE(parse_repo_name(fmt::format("{:a>97}/m", "")));
}

TEST(ContentHashTest, GitHashIsGits) {
  // git hash-object of these contents.
  EXPECT_EQ(git_hash(""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(git_hash("hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(FileSelectionTest, TakesSafetensorsAndTheirCompanions) {
  EXPECT_EQ(
      chosen(
          {".gitattributes",
           "README.md",
           "chat_template.jinja",
           "config.json",
           "consolidated.safetensors",
           "merges.txt",
           "model-00001-of-00002.safetensors",
           "model-00002-of-00002.safetensors",
           "model.safetensors.index.json",
           "modeling.py",
           "onnx/config.json",
           "pytorch_model.bin",
           "tokenizer.model"}),
      (Names{
          "chat_template.jinja",
          "config.json",
          "merges.txt",
          "model-00001-of-00002.safetensors",
          "model-00002-of-00002.safetensors",
          "model.safetensors.index.json",
          "tokenizer.model"}));
}

TEST(FileSelectionTest, TakesTheModulesOfSentenceTransformers) {
  EXPECT_EQ(
      chosen(
          {"10_Dense/model.safetensors",
           "1_Pooling/config.json",
           "2_Dense/config.json",
           "2_Dense/model.safetensors",
           "2_Dense/more/config.json",
           "2_Dense/pytorch_model.bin",
           "_Dense/config.json",
           "config.json",
           "model.safetensors",
           "modules.json",
           "onnx/1_Pooling/config.json",
           "v2/config.json"}),
      (Names{
          "10_Dense/model.safetensors",
          "1_Pooling/config.json",
          "2_Dense/config.json",
          "2_Dense/model.safetensors",
          "config.json",
          "model.safetensors",
          "modules.json"}));
}

TEST(FileSelectionTest, TakesWeightsUnderOtherNames) {
  EXPECT_EQ(
      chosen({"config.json", "weights.00.safetensors"}),
      (Names{"config.json", "weights.00.safetensors"}));
}

TEST(FileSelectionTest, TakesTheOnlyGguf) {
  EXPECT_EQ(
      chosen({"README.md", "config.json", "mmproj-F16.gguf", "m.Q4_1.gguf"}),
      (Names{"m.Q4_1.gguf"}));
}

TEST(FileSelectionTest, SeveralGgufAskForAChoice) {
  Error error = error_of([] { chosen({"m.Q4_0.gguf", "m.Q8_0.gguf"}); });
  EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
  EXPECT_STREQ(
      error.what(),
      "[org/m] has several GGUF files, choose one as org/m:FILE of "
      "m.Q4_0.gguf, m.Q8_0.gguf");
}

TEST(FileSelectionTest, QuantizationChoosesGguf) {
  Names names = {
      "m-IQ4_XS.gguf",
      "m-Q4_K_M.gguf",
      "m-Q4_K_S.gguf",
      "m-Q8_0-00001-of-00002.gguf",
      "m-Q8_0-00002-of-00002.gguf"};
  EXPECT_EQ(chosen(names, "org/m:q4_k_m"), (Names{"m-Q4_K_M.gguf"}));
  EXPECT_EQ(
      chosen(names, "org/m:Q8_0"),
      (Names{"m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"}));
  EXPECT_EQ(chosen(names, "org/m:m-Q4_K_S.gguf"), (Names{"m-Q4_K_S.gguf"}));
  Error error = error_of([&] { chosen(names, "org/m:m-Q4_K_X.gguf"); });
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  EXPECT_NE(
      std::string(error.what()).find("did you mean m-Q4_K_"),
      std::string::npos);
  // Q4 alone is no word of any name.
  EXPECT_EQ(
      error_of([&] { chosen(names, "org/m:Q4"); }).kind(),
      ErrorKind::not_found);
}

TEST(FileSelectionTest, PicklesAloneAreRefused) {
  Error error = error_of([] { chosen({"config.json", "pytorch_model.bin"}); });
  EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  EXPECT_NE(
      std::string(error.what()).find("pytorch_model.bin"),
      std::string::npos);
  EXPECT_EQ(
      error_of([] { chosen({"config.json", "train.py"}); }).kind(),
      ErrorKind::not_found);
}

TEST(FileSelectionTest, PatternsTakeDataOnly) {
  Names names = {"a.json", "b/c.json", "b/d.bin", "e.py", "f.safetensors"};
  EXPECT_EQ(
      chosen(names, "org/m", {.include = {"*.json"}}),
      (Names{"a.json", "b/c.json"}));
  EXPECT_EQ(
      chosen(names, "org/m", {.include = {"*"}}),
      (Names{"a.json", "b/c.json", "f.safetensors"}));
  EXPECT_EQ(
      error_of([&] { chosen(names, "org/m", {.include = {"*.bin"}}); }).kind(),
      ErrorKind::invalid_request);
  EXPECT_EQ(
      error_of([&] { chosen(names, "org/m", {.include = {"e.py"}}); }).kind(),
      ErrorKind::invalid_request);
  EXPECT_EQ(
      error_of([&] { chosen(names, "org/m", {.include = {"*.gguf"}}); }).kind(),
      ErrorKind::not_found);
  EXPECT_EQ(
      error_of([&] { chosen({"a.gguf", "p.bin"}, "org/m:p.bin"); }).kind(),
      ErrorKind::invalid_request);
}

}  // namespace

}  // namespace mlxx::hub
