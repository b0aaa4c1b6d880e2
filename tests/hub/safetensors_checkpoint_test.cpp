#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/core/borrowed_array.h"
#include "mlxx/core/safetensors_writer.h"
#include "mlxx/hub/checkpoint.h"
#include "tests/core/error_of.h"
#include "tests/core/safetensors_builder.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::hub {
namespace {

using Arrays = std::vector<std::pair<std::string, mx::array>>;

class SafetensorsModel : public ::testing::Test {
 protected:
  void config(const std::string& json) {
    folder_.write("config.json", json);
  }
  void weights(const std::string& name, const Arrays& arrays) {
    write_safetensors(folder_.path() / name, arrays);
  }
  std::shared_ptr<const Checkpoint> open() {
    return open_checkpoint(folder_.path());
  }
  void expect_error(const std::string& kind, const std::string& part) {
    std::string message = error_of([&] { open(); });
    EXPECT_TRUE(message.starts_with(kind + ": ")) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  std::vector<std::string> names() {
    auto model = open();
    std::vector<std::string> out;
    for (const auto& tensor : model->tensors()) {
      out.push_back(tensor.name);
    }
    return out;
  }

  TemporaryFolder folder_;
};

using Names = std::vector<std::string>;

mx::array ones(int n) {
  return mx::ones({n});
}

std::string index_of(
    std::initializer_list<std::pair<std::string, std::string>> entries) {
  Json map = Json::object();
  for (const auto& [tensor, file] : entries) {
    map[tensor] = file;
  }
  return Json({{"metadata", {{"total_size", 1}}}, {"weight_map", map}}).dump();
}

constexpr auto kIndex = "model.safetensors.index.json";
constexpr auto kShard1 = "model-00001-of-00002.safetensors";
constexpr auto kShard2 = "model-00002-of-00002.safetensors";

TEST_F(SafetensorsModel, ASingleFileOpens) {
  config(R"({"model_type":"llama"})");
  folder_.write("generation_config.json", R"({"eos_token_id":[1,106]})");
  weights(
      "model.safetensors",
      {{"b.weight", mx::astype(ones(4), mx::bfloat16)}, {"a", ones(2)}});
  folder_.write("._model.safetensors", std::string("\0\5\x16\7", 4));
  auto model = open();
  EXPECT_EQ(model->format(), "safetensors");
  EXPECT_EQ(model->config()["model_type"], "llama");
  EXPECT_EQ(model->generation_config()["eos_token_id"], Json({1, 106}));
  EXPECT_EQ(names(), (Names{"a", "b.weight"}));
  EXPECT_EQ(model->tensors()[1].stored, "BF16");
  EXPECT_EQ(model->tensors()[1].nbytes, 8u);
  EXPECT_GT(model->file_bytes(), 16u);
  Weight w = model->load("b.weight", {});
  EXPECT_EQ(w.weight.dtype(), mx::bfloat16);
  EXPECT_FALSE(w.scales);
  EXPECT_ERROR(model->load("c", {}), "not_found", "'c'");
}

TEST_F(SafetensorsModel, ACompleteIndexNamesExactlyTheFiles) {
  config("{}");
  weights(kShard1, {{"a", ones(1)}});
  weights(kShard2, {{"b", ones(1)}});
  weights("model.safetensors", {{"stray", ones(1)}});
  weights("mtp.safetensors", {{"m", ones(1)}});
  folder_.write(kIndex, index_of({{"a", kShard1}, {"b", kShard2}}));
  EXPECT_EQ(names(), (Names{"a", "b"}));
  folder_.write(
      kIndex,
      index_of({{"a", kShard1}, {"b", kShard2}, {"m", "mtp.safetensors"}}));
  EXPECT_EQ(names(), (Names{"a", "b", "m"}));
}

TEST_F(SafetensorsModel, AStaleIndexGivesWayToACompleteSet) {
  config("{}");
  weights(kShard1, {{"a", ones(1)}});
  weights(kShard2, {{"b", ones(1)}});
  folder_.write(
      kIndex,
      index_of(
          {{"a", "model-00001-of-00005.safetensors"},
           {"b", "model-00005-of-00005.safetensors"}}));
  EXPECT_EQ(names(), (Names{"a", "b"}));
  std::filesystem::remove(folder_.path() / kShard2);
  expect_error("bad_file", "model-00001-of-00005.safetensors, model-00005");
}

TEST_F(SafetensorsModel, IndexEntriesMustBePlainFileNames) {
  config("{}");
  weights(kShard1, {{"a", ones(1)}});
  for (std::string name :
       {"../../etc/x.safetensors",
        "/etc/x.safetensors",
        "sub/x.safetensors",
        "..\\x.safetensors",
        ".x.safetensors",
        "",
        "x.bin"}) {
    folder_.write(kIndex, index_of({{"a", name}}));
    expect_error("bad_file", "not the name of a safetensors file");
  }
  folder_.write(kIndex, R"({"weight_map":{"a":1}})");
  expect_error("bad_file", "'a' must be a file name");
  folder_.write(kIndex, R"({"weight_map":{}})");
  expect_error("bad_file", "'weight_map' is empty");
  folder_.write(kIndex, R"({})");
  expect_error("bad_file", "'weight_map' is missing");
  folder_.write(kIndex, "nonsense");
  expect_error("bad_file", "not valid JSON");
}

TEST_F(SafetensorsModel, TheIndexMustTellTheTruth) {
  config("{}");
  weights(kShard1, {{"a", ones(1)}});
  weights(kShard2, {{"b", ones(1)}});
  folder_.write(kIndex, index_of({{"a", kShard2}, {"b", kShard2}}));
  expect_error("bad_file", "holds the tensor 'a', it does not");
  folder_.write(
      kIndex,
      index_of({{"a", kShard1}, {"b", kShard2}, {"c", kShard2}}));
  expect_error("bad_file", "holds the tensor 'c', it does not");
}

TEST_F(SafetensorsModel, ATensorMayStandInOneFileOnly) {
  config("{}");
  weights(kShard1, {{"a", ones(1)}});
  weights(kShard2, {{"a", ones(1)}});
  expect_error("bad_file", "tensor 'a' stands in");
}

TEST_F(SafetensorsModel, WithoutAnIndexOneSetMustBeComplete) {
  config("{}");
  weights(kShard1, {{"a", ones(1)}});
  expect_error("bad_file", "missing: model-00002-of-00002.safetensors");
  weights(kShard2, {{"b", ones(1)}});
  EXPECT_EQ(names(), (Names{"a", "b"}));
  weights("consolidated.safetensors", {{"c", ones(1)}});
  weights("adapter_model.safetensors", {{"d", ones(1)}});
  EXPECT_EQ(names(), (Names{"a", "b"}));
  weights("model.safetensors", {{"e", ones(1)}});
  expect_error("bad_file", "several sets of weights");
}

TEST_F(SafetensorsModel, FoldersWithoutSafetensorsSayWhatTheyHold) {
  expect_error("not_found", "config.json");
  config("{}");
  expect_error("not_found", "the folder has no weights");
  weights("adapter_model.safetensors", {{"a", ones(1)}});
  expect_error("not_found", "'adapter_model.safetensors' is not taken");
  folder_.write("x.gguf", "GGUF");
  expect_error("not_found", "name the file 'x.gguf' itself");
  folder_.write("weights.npz", "PK");
  expect_error("unsupported", "NumPy files are not loaded");
  folder_.write("pytorch_model.bin", "PK");
  expect_error("unsupported", "pickles can run code and are never loaded");
  EXPECT_ERROR(
      open_checkpoint(folder_.path() / "none"),
      "not_found",
      "no such file");
  EXPECT_ERROR(
      open_checkpoint(folder_.path() / "adapter_model.safetensors"),
      "invalid_request",
      "name the folder");
}

TEST_F(SafetensorsModel, DamagedConfigsAreNamed) {
  weights("model.safetensors", {{"a", ones(1)}});
  struct Case {
    std::string text;
    const char* part;
  };
  for (const Case& c :
       {Case{"", "config.json] the file is empty"},
        Case{"[]", "must be an object"},
        Case{"{", "not valid JSON"},
        Case{"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"},
        Case{"<!DOCTYPE html>", "HTML page"},
        Case{
            R"({"a":)" + std::string(3000, '[') + std::string(3000, ']') + "}",
            "nested deeper"},
        Case{R"({"a":1,"a":2})", "duplicate key 'a'"}}) {
    config(c.text);
    expect_error("bad_file", c.part);
  }
  config("{}");
  folder_.write("generation_config.json", "[1]");
  expect_error("bad_file", "generation_config.json");
}

TEST_F(SafetensorsModel, CustomCodeIsNeverRun) {
  weights("model.safetensors", {{"a", ones(1)}});
  config(R"({"model_type":"llama","model_file":"x.py"})");
  expect_error("unsupported", "needs custom code: 'model_file'");
  config(R"({"model_type":"llama","auto_map":{"AutoModelForCausalLM":"m.X"}})");
  EXPECT_EQ(names(), (Names{"a"}));
}

TEST_F(SafetensorsModel, EightBitFloatsAreNotTakenForBytes) {
  config("{}");
  folder_.write(
      "model.safetensors",
      safetensors_text(
          safetensors_header(
              {safetensors_entry("w.weight", "F8_E4M3", "[4]", 0, 4)}),
          "1234"));
  expect_error("unsupported", "tensor 'w.weight' is stored as F8_E4M3");
}

TEST_F(SafetensorsModel, ATiedHeadIsListedWhereTheFileHasOne) {
  config(R"({"tie_word_embeddings":true})");
  weights(
      "model.safetensors",
      {{"lm_head.weight", mx::ones({2, 2})},
       {"model.embed_tokens.weight", mx::ones({2, 2})}});
  EXPECT_EQ(names(), (Names{"lm_head.weight", "model.embed_tokens.weight"}));
}

TEST_F(SafetensorsModel, LargeTensorsAreTheFilesOwnPages) {
  config("{}");
  mx::array large = mx::reshape(mx::arange(1 << 18), {512, 512});
  weights("model.safetensors", {{"a.weight", large}, {"b", ones(4)}});
  auto model = open();
  size_t before = mx::get_active_memory();
  mx::array loaded = model->load("a.weight", {}).weight;
  if (can_borrow_memory()) {
    EXPECT_LT(mx::get_active_memory() - before, size_t{1} << 16);
  }
  // The array outlives the checkpoint and the file's name.
  model.reset();
  std::filesystem::remove(folder_.path() / "model.safetensors");
  EXPECT_TRUE(mx::array_equal(loaded, large).item<bool>());
}

TEST_F(SafetensorsModel, AFileThatShrinksFailsTheLoadOnly) {
  config("{}");
  weights("model.safetensors", {{"a.weight", mx::ones({512, 512})}});
  auto model = open();
  std::filesystem::resize_file(folder_.path() / "model.safetensors", 1000);
  EXPECT_ERROR(model->load("a.weight", {}), "bad_file", "model.safetensors");
}

// Packed weights --------------------------------------------------------------

Arrays packed(const std::string& module, int group, int bits, int in = 128) {
  auto parts = mx::quantize(mx::random::normal({4, in}), group, bits);
  return {
      {module + ".weight", parts[0]},
      {module + ".scales", parts[1]},
      {module + ".biases", parts[2]}};
}

Arrays join(std::initializer_list<Arrays> lists) {
  Arrays out;
  for (const auto& list : lists) {
    out.insert(out.end(), list.begin(), list.end());
  }
  return out;
}

TEST_F(SafetensorsModel, EachModuleHasItsOwnQuantization) {
  config(R"({"quantization":{"group_size":64,"bits":4,
      "model.layers.0.mlp.down_proj":{"group_size":32,"bits":8},
      "lm_head":false}})");
  weights(
      "model.safetensors",
      join(
          {packed("model.layers.0.mlp.up_proj", 64, 4),
           packed("model.layers.0.mlp.down_proj", 32, 8),
           {{"lm_head.weight", mx::ones({4, 128})},
            // Rows of 100 cannot be packed and were not.
            {"model.odd.weight", mx::ones({4, 100})}}}));
  auto model = open();
  ASSERT_EQ(model->tensors().size(), 4u);
  const auto& head = model->tensors()[0];
  EXPECT_EQ(head.name, "lm_head.weight");
  EXPECT_FALSE(head.quantization);
  const auto& down = model->tensors()[1];
  EXPECT_EQ(down.shape, (std::vector<int64_t>{4, 128}));
  EXPECT_EQ(down.stored, "U32 affine");
  EXPECT_EQ(down.quantization->bits, 8);
  EXPECT_EQ(down.quantization->group_size, 32);
  EXPECT_EQ(down.nbytes, 4u * 128 + 2 * 4 * 4 * 4);
  EXPECT_EQ(model->tensors()[2].quantization->bits, 4);
  Weight w = model->load(down.name, {});
  EXPECT_EQ(w.weight.shape(), (mx::Shape{4, 32}));
  EXPECT_EQ(w.scales->shape(), (mx::Shape{4, 4}));
  EXPECT_TRUE(w.biases);
}

TEST_F(SafetensorsModel, EveryWidthThatMlxPacksIsRead) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    config(fmt::format(
        R"({{"quantization_config":{{"group_size":32,"bits":{}}}}})",
        bits));
    weights("model.safetensors", packed("m", 32, bits));
    EXPECT_EQ(open()->tensors()[0].shape, (std::vector<int64_t>{4, 128}))
        << bits;
  }
}

TEST_F(SafetensorsModel, PackedWeightsThatContradictTheConfigAreNamed) {
  auto with = [&](const std::string& quantization, const Arrays& arrays) {
    config(R"({"quantization":)" + quantization + "}");
    weights("model.safetensors", arrays);
  };
  const std::string four = R"({"group_size":64,"bits":4})";
  const std::string own = R"({"group_size":64,"bits":4,"m.q":)";
  with(own + R"({"bits":8}})", packed("m.q", 64, 4));
  expect_error("bad_file", "'m.q': packed shape [4, 16] and scales [4, 2]");
  with(own + R"({"group_size":32}})", packed("m.q", 64, 4));
  expect_error("bad_file", "do not fit 4 bits in groups of 32");
  with(R"({"group_size":64,"bits":4,"m.q":false})", packed("m.q", 64, 4));
  expect_error("bad_file", "config.json says that it is dense");
  config("{}");
  expect_error("bad_file", "config.json has no 'quantization'");
  with(
      R"({"group_size":64,"bits":4,"m.q":{"bits":8}})",
      {{"m.q.weight", mx::ones({4, 128})}});
  expect_error("bad_file", "'m.q': the weights are said to be packed");
  with(four, {packed("m.q", 64, 4)[0]});
  expect_error("bad_file", "there are no scales");
  auto parts = packed("m.q", 64, 4);
  with(four, {parts[0], parts[1]});
  expect_error("bad_file", "affine weights need biases");
  with(four, {parts[0], parts[1], {"m.q.biases", mx::ones({4, 3})}});
  expect_error("bad_file", "scales and biases differ");
  with(four, {{"m.q.weight", mx::ones({4, 16})}, parts[1], parts[2]});
  expect_error("bad_file", "must be a U32 matrix, found F32 [4, 16]");
}

TEST_F(SafetensorsModel, MicroscaledWeightsHaveByteScalesAndNoBiases) {
  auto parts = mx::quantize(mx::random::normal({4, 64}), 32, 4, "mxfp4");
  config(R"({"quantization":{"group_size":32,"bits":4,"mode":"mxfp4"}})");
  Arrays arrays{{"m.weight", parts[0]}, {"m.scales", parts[1]}};
  weights("model.safetensors", arrays);
  auto model = open();
  EXPECT_EQ(model->tensors()[0].stored, "U32 mxfp4");
  EXPECT_FALSE(model->load("m.weight", {}).biases);
  arrays.emplace_back("m.biases", parts[1]);
  weights("model.safetensors", arrays);
  expect_error("bad_file", "mxfp4 weights have no biases");
}

TEST_F(SafetensorsModel, ImpossibleQuantizationsAreRefused) {
  weights("model.safetensors", {{"a", ones(1)}});
  struct Case {
    const char* quantization;
    const char* kind;
    const char* part;
  };
  for (const Case& c :
       {Case{R"({"bits":7,"group_size":64})", "unsupported", "7 bits"},
        Case{R"({"bits":4,"group_size":48})", "unsupported", "of 48"},
        Case{
            R"({"bits":4,"mode":"mxfp4","group_size":64})",
            "unsupported",
            "mxfp4 quantization with 4 bits in groups of 64"},
        Case{R"({"bits":4,"mode":"magic"})", "unsupported", "'magic'"},
        Case{R"({"bits":"4"})", "bad_file", "'bits' must be a whole"},
        Case{R"({"bits":4,"m":{"bits":-1}})", "bad_file", "'bits' is -1"},
        Case{R"({"x":1})", "unsupported", "without 'bits'"}}) {
    config(std::string(R"({"quantization":)") + c.quantization + "}");
    expect_error(c.kind, c.part);
  }
}

TEST_F(SafetensorsModel, WhereNoFormIsNamedTheShapesDecide) {
  // The entry for all is for other modules, as mlx-lm writes it.
  config(R"({"quantization":{"group_size":64,"bits":4,
      "n":{"group_size":32,"bits":2}}})");
  weights(
      "model.safetensors",
      join({packed("a", 64, 8), packed("b", 32, 4), packed("n", 32, 2)}));
  auto model = open();
  const auto& a = *model->tensors()[0].quantization;
  EXPECT_EQ(a.bits, 8);
  EXPECT_EQ(a.group_size, 64);
  EXPECT_TRUE(a.is_default);
  // 4 x 32 and 2 x 64 look alike: what shares the group size is taken until
  // the model says how wide the matrix is.
  const auto& b = model->tensors()[1];
  EXPECT_EQ(b.quantization->bits * b.quantization->group_size, 4 * 32);
  EXPECT_FALSE(model->tensors()[2].quantization->is_default);
}

TEST_F(SafetensorsModel, ModesAreToldApartByTheirScales) {
  config(R"({"quantization":{"group_size":64,"bits":4}})");
  for (auto [mode, group, bits] :
       {std::tuple("nvfp4", 16, 4),
        std::tuple("mxfp4", 32, 4),
        std::tuple("mxfp8", 32, 8)}) {
    auto parts = mx::quantize(mx::random::normal({4, 128}), group, bits, mode);
    weights(
        "model.safetensors",
        {{"m.weight", parts[0]}, {"m.scales", parts[1]}});
    auto model = open();
    EXPECT_EQ(model->tensors()[0].quantization->mode, mode);
    EXPECT_EQ(model->tensors()[0].shape, (std::vector<int64_t>{4, 128}));
  }
}

TEST_F(SafetensorsModel, ExpertsMayHaveGlobalScales) {
  auto make = [&](const mx::array& global) {
    auto parts = mx::quantize(mx::random::normal({3, 4, 64}), 16, 4, "nvfp4");
    weights(
        "model.safetensors",
        {{"m.weight", parts[0]},
         {"m.scales", parts[1]},
         {"m.global_scale", global}});
  };
  const auto quantized =
      R"({"quantization":{"group_size":16,"bits":4,"mode":"nvfp4",
          "m":{"group_size":16,"bits":4,"mode":"nvfp4","global_scale":true}}})";
  config(quantized);
  make(mx::array({1.0f, 2.0f, 3.0f}));
  auto model = open();
  ASSERT_EQ(model->tensors().size(), 1u);
  EXPECT_EQ(model->tensors()[0].nbytes, 3u * 4 * 36 + 12);
  Weight w = model->load("m.weight", {});
  ASSERT_TRUE(w.global_scale);
  EXPECT_EQ(w.global_scale->shape(), (mx::Shape{3}));
  make(mx::array({1.0f, 2.0f}));
  expect_error("bad_file", "'m': a global scale must be F32");
  make(mx::ones({3}, mx::float16));
  expect_error("bad_file", "'m': a global scale must be F32");
  config(
      R"({"quantization":{"group_size":16,"bits":4,"mode":"nvfp4",
          "m":{"group_size":16,"bits":4,"mode":"nvfp4"}}})");
  make(mx::array({1.0f, 2.0f, 3.0f}));
  expect_error("bad_file", "'m': a global scale must be F32");
}

}  // namespace
}  // namespace mlxx::hub
