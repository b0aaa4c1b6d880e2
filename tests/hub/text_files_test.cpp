#include "mlxx/hub/text_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::hub {
namespace {

class TextFilesOfAFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("tokenizer.json", "{}");
  }
  TextFiles read() {
    return read_text_files(folder_.path());
  }
  using Templates = std::vector<std::pair<std::string, std::string>>;

  TemporaryFolder folder_;
};

TEST_F(TextFilesOfAFolder, NothingButATokenizerIsNeeded) {
  TextFiles text = read();
  EXPECT_EQ(text.tokenizer_json, "{}");
  EXPECT_EQ(text.tokenizer_config_json, "{}");
  EXPECT_TRUE(text.chat_templates.empty());
}

TEST_F(TextFilesOfAFolder, TemplatesComeFromTheFirstPlaceThatHasThem) {
  folder_.write("tokenizer_config.json", R"({"chat_template":"config"})");
  EXPECT_EQ(read().chat_templates, (Templates{{"default", "config"}}));
  folder_.write("chat_template.json", R"({"chat_template":"json"})");
  EXPECT_EQ(read().chat_templates, (Templates{{"default", "json"}}));
  folder_.write("chat_template.jinja", "\xEF\xBB\xBFjinja\r\n");
  EXPECT_EQ(read().chat_templates, (Templates{{"default", "jinja\r\n"}}));
  folder_.write("additional_chat_templates/tool_use.jinja", "tools");
  folder_.write("additional_chat_templates/notes.txt", "no template");
  EXPECT_EQ(
      read().chat_templates,
      (Templates{{"default", "jinja\r\n"}, {"tool_use", "tools"}}));
}

TEST_F(TextFilesOfAFolder, ListsOfNamedTemplatesKeepTheirOrder) {
  folder_.write("tokenizer_config.json", R"({"chat_template":[
      {"name":"tool_use","template":"t"},{"name":"default","template":"d"}]})");
  EXPECT_EQ(
      read().chat_templates,
      (Templates{{"tool_use", "t"}, {"default", "d"}}));
  folder_.write("chat_template.json", R"({"chat_template":{"a":"x"}})");
  EXPECT_EQ(read().chat_templates, (Templates{{"a", "x"}}));
}

TEST_F(TextFilesOfAFolder, MalformedTemplatesAreRefused) {
  struct Case {
    const char* json;
    const char* part;
  };
  for (const Case& c :
       {Case{R"({"chat_template":5})", "must be a string"},
        Case{R"({"chat_template":[1]})", "must be an object"},
        Case{R"({"chat_template":[{"name":"a"}]})", "'template' is missing"},
        Case{
            R"({"chat_template":[{"name":"a","template":"x"},
                                     {"name":"a","template":"y"}]})",
            "'a' stands twice"},
        Case{"[]", "must be an object"}}) {
    folder_.write("tokenizer_config.json", c.json);
    EXPECT_ERROR(read(), "bad_file", c.part);
  }
  folder_.write("tokenizer_config.json", "{}");
  folder_.write("chat_template.jinja", "\xff");
  EXPECT_ERROR(read(), "bad_file", "not valid UTF-8");
}

TEST_F(TextFilesOfAFolder, PythonsWordsForNumbersBecomeJson) {
  folder_.write(
      "config.json",
      R"({"a": [0.0, Infinity], "b":-Infinity, "c": NaN, "d": "\"Infinity"})");
  Json config = read_json_object(folder_.path() / "config.json");
  EXPECT_EQ(config["a"][1], Json({{"__float__", "Infinity"}}));
  EXPECT_EQ(config["b"], Json({{"__float__", "-Infinity"}}));
  EXPECT_EQ(config["c"], Json({{"__float__", "NaN"}}));
  EXPECT_EQ(config["d"], "\"Infinity");
  folder_.write("config.json", R"({"a": Infinit})");
  EXPECT_ERROR(
      read_json_object(folder_.path() / "config.json"),
      "bad_file",
      "config.json");
}

TEST_F(TextFilesOfAFolder, SpecialTokensMissingFromTheConfigAreFilledIn) {
  folder_.write(
      "tokenizer_config.json",
      R"({"bos_token":"<s>","eos_token":null,"chat_template":"x"})");
  folder_.write(
      "special_tokens_map.json",
      R"({"bos_token":"<other>","eos_token":{"content":"</s>"}})");
  Json config = Json::parse(read().tokenizer_config_json);
  EXPECT_EQ(
      config,
      Json({{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}}));
}

TEST_F(TextFilesOfAFolder, ATokenizerOfAnotherKindIsNamed) {
  std::filesystem::remove(folder_.path() / "tokenizer.json");
  EXPECT_ERROR(read(), "not_found", "there is no tokenizer.json");
  folder_.write("tokenizer.model", "x");
  EXPECT_ERROR(read(), "unsupported", "only 'tokenizer.model'");
  folder_.write("tokenizer.json", "");
  EXPECT_ERROR(read(), "bad_file", "the file is empty");
  folder_.write("tokenizer.json", "version https://git-lfs.github.com/spec");
  EXPECT_ERROR(read(), "bad_file", "Git LFS pointer");
}

}  // namespace
}  // namespace mlxx::hub
