// Whole models whose weights other programs packed or put beside a tower.
#include <gtest/gtest.h>

#include "mlxx/core/safetensors_writer.h"
#include "mlxx/kernels/expert_matmul/expert_matmul.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "mlxx/models/load_weights.h"
#include "tests/core/temporary_folder.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

Json llama_config() {
  return Json::parse(R"({"model_type":"llama","vocab_size":64,
      "hidden_size":128,"intermediate_size":128,"num_hidden_layers":2,
      "num_attention_heads":2,"rms_norm_eps":1e-5,
      "tie_word_embeddings":false})");
}

mx::array logits_of(const Model& model) {
  int ids[] = {1, 2, 3, 4, 5};
  auto cache = model.make_cache({});
  mx::array result = model.forward(mx::array(ids, {1, 5}, mx::int32), cache);
  mx::eval(result);
  return result;
}

class PackedModels : public ::testing::Test {
 protected:
  std::shared_ptr<const Model> load() {
    auto checkpoint = hub::open_checkpoint(folder_.path());
    return load_model(*checkpoint);
  }
  void write_config(const Json& config) {
    folder_.write("config.json", config.dump());
  }
  TemporaryFolder folder_;
};

// 4 bits in groups of 32 and 2 bits in groups of 64 have the same shapes.
TEST_F(PackedModels, TheModelSettlesWhatShapesLeaveOpen) {
  auto fake =
      random_checkpoint(llama_config(), hub::Quantization{32, 4, "affine"});
  mx::array expected = logits_of(*load_model(fake));
  std::vector<std::pair<std::string, mx::array>> arrays;
  for (const auto& tensor : fake.tensors()) {
    hub::Weight w = fake.load(tensor.name, {});
    arrays.emplace_back(tensor.name, w.weight);
    auto module = tensor.name.substr(0, tensor.name.rfind('.'));
    if (w.scales) {
      arrays.emplace_back(module + ".scales", *w.scales);
      arrays.emplace_back(module + ".biases", *w.biases);
    }
  }
  write_safetensors(folder_.path() / "model.safetensors", arrays);
  Json config = llama_config();
  config["quantization"] = {{"group_size", 64}, {"bits", 4}};
  write_config(config);
  EXPECT_TRUE(same_bits(logits_of(*load()), expected));
  // What config.json says of a module is not guessed over.
  config["quantization"]["lm_head"] = {{"group_size", 64}, {"bits", 2}};
  write_config(config);
  EXPECT_THROW(load(), Error);
}

// The tensors of a text model inside a model that sees.
TEST_F(PackedModels, TheTextOfAVisionModelIsTheTextModel) {
  Json text = Json::parse(std::string(find_model("gemma3_text").tiny_config));
  auto fake = random_checkpoint(text);
  mx::array expected = logits_of(*load_model(fake));
  std::vector<std::pair<std::string, mx::array>> arrays{
      {"model.vision_tower.x", mx::ones({3})}};
  for (const auto& tensor : fake.tensors()) {
    std::string name = tensor.name;
    if (name.starts_with("model.")) {
      name = "model.language_model." + name.substr(6);
    }
    arrays.emplace_back(name, fake.load(tensor.name, {}).weight);
  }
  write_safetensors(folder_.path() / "model.safetensors", arrays);
  write_config(
      {{"model_type", "gemma3"},
       {"vocab_size", text["vocab_size"]},
       {"text_config", text}});
  EXPECT_TRUE(same_bits(logits_of(*load()), expected));
}

// A model's own rewriting is applied, and what it cannot use is still named.
TEST_F(PackedModels, LoadingAppliesTheRewritingOfTheModel) {
  auto fake = random_checkpoint(
      Json::parse(std::string(find_model("phi3").tiny_config)));
  auto rewritten = rewrite_checkpoint(find_model("phi3"), fake);
  ASSERT_TRUE(rewritten);
  EXPECT_NO_THROW(load_model(fake));
  fake.add("model.layers.0.self_attn.extra.weight", mx::ones({2, 2}));
  EXPECT_THROW(load_model(fake), Error);
}

struct Global {
  Parameter parameter;
  mx::array dense;
};

// nvfp4 with a scale for each matrix of [N, out, in] or of [out, in].
Global with_global_scale(const mx::array& w) {
  bool is_stack = w.ndim() == 3;
  std::vector<mx::array> words, scales, globals, dense;
  for (int e = 0; e < (is_stack ? w.shape(0) : 1); ++e) {
    mx::array one = is_stack ? mx::take(w, e, 0) : w;
    mx::array largest = mx::max(mx::abs(one));
    auto parts = mx::quantize(one, 16, 4, "nvfp4", largest);
    words.push_back(parts[0]);
    scales.push_back(parts[1]);
    globals.push_back(largest);
    dense.push_back(mx::dequantize(
        parts[0],
        parts[1],
        {},
        16,
        4,
        "nvfp4",
        largest,
        mx::float32));
  }
  auto join = [&](const std::vector<mx::array>& all) {
    mx::array joined = is_stack ? mx::stack(all) : all[0];
    mx::eval(joined);
    return joined;
  };
  Parameter parameter(w.shape(), Parameter::Kind::matrix);
  parameter.set(
      {join(words), join(scales), std::nullopt, join(globals)},
      QuantizationSpec{16, 4, "nvfp4"});
  return {std::move(parameter), join(dense)};
}

TEST_F(PackedModels, GlobalScalesMultiplyTheProduct) {
  auto key = mx::random::key(1);
  Global one = with_global_scale(mx::multiply(
      mx::random::normal({8, 64}, mx::float32, 0, 1, key),
      mx::array(0.02f)));
  mx::array x = mx::random::normal({3, 64}, mx::float32, 0, 1, key);
  EXPECT_LT(
      relative_error(
          kernels::quantized_matmul(x, one.parameter),
          mx::matmul(x, mx::transpose(one.dense))),
      1e-5);
  mx::array ids({5, 0}, mx::int32);
  EXPECT_LT(
      relative_error(
          kernels::dequantize_rows(one.parameter, ids),
          mx::take(one.dense, ids, 0)),
      1e-6);
  // No panels, which have no place for it.
  EXPECT_FALSE(kernels::pack_quantized(
      one.parameter.arrays(),
      *one.parameter.quantization(),
      kernels::select_best()));
}

TEST_F(PackedModels, EveryExpertHasItsGlobalScale) {
  auto key = mx::random::key(1);
  mx::array sizes = mx::reshape(mx::array({0.01f, 1.0f, 30.0f}), {3, 1, 1});
  Global all = with_global_scale(mx::multiply(
      mx::random::normal({3, 8, 64}, mx::float32, 0, 1, key),
      sizes));
  mx::array x = mx::random::normal({2, 1, 1, 64}, mx::float32, 0, 1, key);
  mx::array routes = mx::array({2, 0, 1, 2}, {2, 2}, mx::int32);
  mx::array got =
      kernels::expert_matmul(x, all.parameter, routes, /*sorted=*/false);
  mx::array expected =
      mx::gather_mm(x, mx::swapaxes(all.dense, -1, -2), std::nullopt, routes);
  EXPECT_LT(relative_error(got, expected), 1e-5);
  EXPECT_FALSE(kernels::pack_experts(
      all.parameter.arrays(),
      all.parameter.quantization(),
      kernels::select_best()));
}

}  // namespace
}  // namespace mlxx::models
