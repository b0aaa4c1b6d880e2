// Files that are no usable model, as a user meets them: one error line, never
// a crash.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "tests/apps/child_process.h"

namespace mlxx::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:"
    "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n";
constexpr const char* kPage =
    "<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n";

class BadModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
        ("mlxx_bad_models_" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "home");
  }
  void TearDown() override {
    fs::remove_all(folder_);
  }

  fs::path write(const std::string& name, const std::string& content) {
    auto path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  ChildResult run(std::vector<std::string> arguments) {
    ChildOptions options;
    options.arguments = std::move(arguments);
    // No model of this machine may answer instead.
    options.environment["MLXX_HOME"] = (folder_ / "home").string();
    options.environment["HF_HOME"] = (folder_ / "home").string();
    return run_mlxx(options);
  }

  // Every verb that opens a model refuses it with a line that holds `part`.
  void expect_refused(const std::string& model, const std::string& part) {
    for (const char* verb : {"generate", "show"}) {
      std::vector<std::string> arguments{verb, "-m", model};
      if (std::string(verb) == "generate") {
        arguments.push_back("hi");
      }
      auto result = run(arguments);
      EXPECT_EQ(result.exit_code, 1) << verb << " " << result.err;
      EXPECT_TRUE(is_error_line(result.err)) << verb << " " << result.err;
      EXPECT_NE(result.err.find(part), std::string::npos)
          << verb << " " << result.err;
      EXPECT_EQ(result.out, "") << verb;
    }
  }

  // A folder in Hugging Face layout with one weight file.
  std::string model_folder(const Json& config, const std::string& weights) {
    write("model/config.json", config.dump());
    write("model/tokenizer.json", "{}");
    write("model/model.safetensors", weights);
    return (folder_ / "model").string();
  }

  fs::path folder_;
};

Json llama_config() {
  return Json{
      {"model_type", "llama"},
      {"hidden_size", 64},
      {"intermediate_size", 128},
      {"num_hidden_layers", 1},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"vocab_size", 32},
      {"rms_norm_eps", 1e-5},
      {"max_position_embeddings", 128}};
}

// A safetensors file of that header, with `bytes` of zeros.
std::string safetensors(const Json& header, size_t bytes) {
  std::string text = header.dump();
  uint64_t length = text.size();
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out += static_cast<char>(length >> (8 * i));
  }
  return out + text + std::string(bytes, '\0');
}

// The default model is not there: the error says how to get it.
TEST_F(BadModel, MissingDefaultModel) {
  auto result = run({"generate", "hi"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(is_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("mlxx pull smollm2"), std::string::npos)
      << result.err;
}

TEST_F(BadModel, MistypedCatalogueName) {
  expect_refused("smolm2", "did you mean 'smollm2'?");
}

TEST_F(BadModel, Missing) {
  expect_refused((folder_ / "no.gguf").string(), "no.gguf");
  expect_refused((folder_ / "no_folder").string(), "no_folder");
  expect_refused("nobody/nothing", "mlxx pull nobody/nothing");
  fs::create_directories(folder_ / "empty");
  expect_refused((folder_ / "empty").string(), "config.json");
}

TEST_F(BadModel, Gguf) {
  expect_refused(write("a.gguf", "").string(), "a.gguf");
  expect_refused(write("b.gguf", kPointer).string(), "LFS");
  expect_refused(write("c.gguf", kPage).string(), "HTML");
  expect_refused(write("d.gguf", "GGUF\3").string(), "d.gguf");
  expect_refused(write("e.gguf", std::string(4096, '\xFF')).string(), "e.gguf");
}

TEST_F(BadModel, Safetensors) {
  expect_refused(model_folder(llama_config(), kPointer), "LFS");
  expect_refused(model_folder(llama_config(), kPage), "HTML");
  expect_refused(model_folder(llama_config(), ""), "model.safetensors");
  // The header promises more than there is.
  Json header{
      {"model.embed_tokens.weight",
       {{"dtype", "F32"}, {"shape", {32, 64}}, {"data_offsets", {0, 8192}}}}};
  expect_refused(
      model_folder(llama_config(), safetensors(header, 100)),
      "model.safetensors");
}

TEST_F(BadModel, Config) {
  auto folder = model_folder(llama_config(), safetensors(Json::object(), 0));
  write("model/config.json", kPage);
  expect_refused(folder, "config.json");
  write("model/config.json", kPointer);
  expect_refused(folder, "config.json");
  write("model/config.json", "{\"model_type\": ");
  expect_refused(folder, "config.json");
  write("model/config.json", std::string(100'000, '['));
  expect_refused(folder, "config.json");
}

// `show` describes what cannot run, and says why.
TEST_F(BadModel, UnknownArchitecture) {
  Json config = llama_config();
  config["model_type"] = "perceptron9000";
  Json header{
      {"w.weight",
       {{"dtype", "F32"}, {"shape", {2, 2}}, {"data_offsets", {0, 16}}}}};
  auto model = model_folder(config, safetensors(header, 16));
  auto result = run({"generate", "-m", model, "hi"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(is_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("perceptron9000"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("llama"), std::string::npos) << result.err;
  auto shown = run({"show", model});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_NE(shown.out.find("cannot run"), std::string::npos) << shown.out;
}

TEST_F(BadModel, UnknownQuantization) {
  Json config = llama_config();
  config["quantization_config"] = {
      {"quant_method", "made_up_quant"},
      {"bits", 3}};
  Json header{
      {"w.weight",
       {{"dtype", "F32"}, {"shape", {2, 2}}, {"data_offsets", {0, 16}}}}};
  auto result = run(
      {"generate", "-m", model_folder(config, safetensors(header, 16)), "hi"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(is_error_line(result.err)) << result.err;
  EXPECT_NE(result.err.find("made_up_quant"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace mlxx::apps
