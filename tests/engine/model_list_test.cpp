#include "mlxx/engine/model_list.h"

#include <fstream>
#include <future>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "tests/engine/tiny_model_folder.h"

namespace mlxx::engine {
namespace {

namespace fs = std::filesystem;

class List : public ::testing::Test {
 protected:
  ModelListOptions options() const {
    ModelListOptions options;
    options.models = {{"b", folder.path() / "b"}, {"a", folder.path() / "a"}};
    return options;
  }
  void SetUp() override {
    for (const char* name : {"a", "b"}) {
      write_tiny_model(folder.path() / name);
    }
  }

  TemporaryFolder folder;
};

ErrorKind kind_of(const std::function<void()>& call, const char* part) {
  try {
    call();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(part), what.npos) << what;
    return error.kind();
  }
  ADD_FAILURE() << "no error: " << part;
  return ErrorKind::internal;
}

TEST_F(List, KeepsTheOrderAndTheFirstIsTheDefault) {
  ModelList list(options());
  auto models = list.list();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].name, "b");
  EXPECT_EQ(models[1].name, "a");
  EXPECT_GT(models[0].created, 1'600'000'000);
  EXPECT_FALSE(models[0].loaded);
  EXPECT_EQ(list.text("")->name, "b");
  list.set_loaded("a", true);
  EXPECT_TRUE(list.list()[1].loaded);
}

TEST_F(List, ReadsTextsWithoutWeights) {
  ModelList list(options());
  auto text = list.text("a");
  EXPECT_EQ(text->name, "a");
  EXPECT_EQ(text->model_type, "llama");
  EXPECT_EQ(text->vocab_size, 300);
  EXPECT_EQ(text->context_length, 512);
  EXPECT_FALSE(text->is_embedding_model);
  EXPECT_TRUE(text->eos_ids.contains(*text->tokenizer->token_to_id("</s>")));
  EXPECT_EQ(text->chat_template_source, kTinyTemplate);
  auto messages = OrderedJson::array({{{"role", "user"}, {"content", "hi"}}});
  EXPECT_EQ(
      render_chat(*text, messages, nullptr, {}),
      "<s>user:hi</s>assistant:");
  EXPECT_EQ(list.text("a"), text);
}

TEST_F(List, ManyThreadsReadAModelOnce) {
  ModelList list(options());
  std::vector<std::future<std::shared_ptr<const ModelText>>> texts;
  for (int i = 0; i < 8; ++i) {
    texts.push_back(std::async(std::launch::async, [&list, i] {
      list.list();
      return list.text(i % 2 == 0 ? "a" : "b");
    }));
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(texts[i].get(), list.text(i % 2 == 0 ? "a" : "b"));
  }
}

TEST_F(List, ModelsOfVectorsAndScoresAreKnownByTheirFiles) {
  auto write = [&](const char* name, const Json& changes) {
    Json config = tiny_llama_config();
    config.update(changes);
    write_tiny_model(folder.path() / name, config);
  };
  write("v", {{"architectures", {"LlamaModel"}}});
  std::ofstream(folder.path() / "v" / "modules.json") << R"([
    {"idx": 0, "name": "0", "path": "",
     "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling",
     "type": "sentence_transformers.models.Pooling"}])";
  fs::create_directory(folder.path() / "v" / "1_Pooling");
  std::ofstream(folder.path() / "v" / "1_Pooling" / "config.json")
      << R"({"word_embedding_dimension": 128,
             "pooling_mode_lasttoken": true})";
  write("r", {{"architectures", {"LlamaForSequenceClassification"}}});
  ModelListOptions more = options();
  more.models.push_back({"v", folder.path() / "v"});
  more.models.push_back({"r", folder.path() / "r"});
  ModelList list(more);
  EXPECT_FALSE(list.text("a")->is_embedding_model);
  EXPECT_TRUE(list.text("v")->is_embedding_model);
  EXPECT_FALSE(list.text("v")->is_reranker);
  EXPECT_TRUE(list.text("r")->is_reranker);
}

TEST_F(List, AnUnknownArchitectureIsUnsupported) {
  Json config = tiny_llama_config();
  config["model_type"] = "nonesuch";
  std::ofstream(folder.path() / "a" / "config.json") << config.dump();
  ModelList list(options());
  EXPECT_EQ(
      kind_of([&] { list.text("a"); }, "nonesuch"),
      ErrorKind::unsupported);
}

TEST_F(List, NoNameIsAPath) {
  ModelList list(options());
  const std::string path = (folder.path() / "a").string();
  for (const std::string& name :
       {path,
        std::string("./a"),
        std::string("a/"),
        std::string("A"),
        std::string("../a"),
        std::string("org/repo"),
        std::string("smollm2")}) {
    EXPECT_EQ(
        kind_of([&] { list.text(name); }, "there is no model"),
        ErrorKind::not_found);
    EXPECT_EQ(
        kind_of([&] { list.open(name); }, "but b, a"),
        ErrorKind::not_found);
  }
}

TEST_F(List, HostileNamesAreNotEchoed) {
  ModelList list(options());
  for (const std::string& name :
       {std::string("a\0b", 3),
        std::string("a\nb"),
        std::string("\xff\xfe"),
        std::string(1 << 20, 'x')}) {
    EXPECT_EQ(
        kind_of([&] { list.text(name); }, "[model name] must be"),
        ErrorKind::invalid_request);
  }
}

TEST_F(List, DownloadsOnlyWhereAllowedAndOnlyNames) {
  ModelListOptions allowed = options();
  std::vector<std::string> asked;
  allowed.download = [&](const std::string& name) {
    asked.push_back(name);
    return folder.path() / "a";
  };
  ModelList list(std::move(allowed));
  EXPECT_EQ(list.text("org/repo")->name, "org/repo");
  EXPECT_EQ(list.text("org/repo")->name, "org/repo");
  EXPECT_EQ(asked, std::vector<std::string>{"org/repo"});
  EXPECT_EQ(list.list().size(), 3u);
  EXPECT_THROW(list.text("/etc/passwd"), Error);
  EXPECT_THROW(list.text("../a"), Error);
  // The engine's thread never waits for a network.
  EXPECT_THROW(list.open("org/other"), Error);
  EXPECT_EQ(asked.size(), 1u);
}

TEST_F(List, RefusesTwoOfAName) {
  ModelListOptions twice = options();
  twice.models.push_back(twice.models[0]);
  EXPECT_EQ(
      kind_of([&] { ModelList list(twice); }, "NAME=MODEL"),
      ErrorKind::invalid_request);
  EXPECT_EQ(
      kind_of([&] { ModelList list(ModelListOptions{}); }, "none"),
      ErrorKind::invalid_request);
}

TEST_F(List, ADamagedModelIsAnErrorOfItsOwn) {
  std::ofstream(folder.path() / "a" / "config.json") << "{";
  ModelList list(options());
  EXPECT_EQ(
      kind_of([&] { list.text("a"); }, "config.json"),
      ErrorKind::bad_file);
  EXPECT_EQ(list.text("b")->name, "b");
}

TEST_F(List, NamesOfTheCommandLine) {
  const std::string path = (folder.path() / "a").string();
  EXPECT_EQ(named_model(path).name, "a");
  EXPECT_EQ(named_model(path + "/").name, "a");
  NamedModel other = named_model("my model=" + path);
  EXPECT_EQ(other.name, "my model");
  EXPECT_EQ(other.path, folder.path() / "a");
  EXPECT_THROW(named_model("x\n=" + path), Error);
  EXPECT_THROW(named_model(path + "/none"), Error);
}

TEST_F(List, AFolderOfModels) {
  fs::create_directory(folder.path() / "empty");
  fs::create_directory(folder.path() / "loop");
  fs::create_directory_symlink(folder.path(), folder.path() / "loop" / "again");
  fs::create_directory(folder.path() / "two");
  for (const char* file : {"x.gguf", "two/y.gguf", "two/z.gguf", "c.txt"}) {
    std::ofstream(folder.path() / file) << "GGUF";
  }
  std::vector<std::string> names;
  for (const auto& model : models_in_folder(folder.path())) {
    names.push_back(model.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "two/y", "two/z", "x"}));
  EXPECT_EQ(
      kind_of(
          [&] { models_in_folder(folder.path() / "empty"); },
          "holds no model"),
      ErrorKind::not_found);
  EXPECT_EQ(
      kind_of([&] { models_in_folder(folder.path() / "none"); }, "none"),
      ErrorKind::not_found);
}

}  // namespace
}  // namespace mlxx::engine
