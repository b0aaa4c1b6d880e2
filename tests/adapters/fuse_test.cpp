#include "mlxx/adapters/fuse.h"

#include <gtest/gtest.h>

#include "mlxx/adapters/mounted.h"
#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/hub/export_mlx.h"
#include "tests/adapters/adapter_writer.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::adapters {
namespace {

namespace fs = std::filesystem;

Json llama_config(const char* type = "llama") {
  Json config = parse_json(
      R"({"vocab_size":96,"hidden_size":64,
          "intermediate_size":128,"num_hidden_layers":2,
          "num_attention_heads":4,"num_key_value_heads":2,
          "rms_norm_eps":1e-5,"tie_word_embeddings":true,
          "max_position_embeddings":512,"torch_dtype":"float32"})",
      "config.json");
  config["model_type"] = type;
  return config;
}

// With the texts that a folder needs.
class TextCheckpoint : public models::FakeCheckpoint {
 public:
  explicit TextCheckpoint(const models::FakeCheckpoint& weights)
      : FakeCheckpoint(weights) {
    text_.tokenizer_json =
        R"({"version":"1.0","truncation":null,"padding":null,)"
        R"("added_tokens":[],"normalizer":null,)"
        R"("pre_tokenizer":{"type":"Whitespace"},"post_processor":null,)"
        R"("decoder":null,"model":{"type":"WordLevel",)"
        R"("vocab":{"a":0,"b":1},"unk_token":"a"}})";
    text_.tokenizer_config_json = R"({"eos_token":"b"})";
  }
  const hub::TextFiles& text() const override {
    return text_;
  }

 private:
  hub::TextFiles text_;
};

using ModelPtr = std::shared_ptr<const models::Model>;

ModelPtr load(const fs::path& folder) {
  return models::load_model(
      *hub::open_checkpoint(folder),
      models::LoadOptions{.kernels = models::selection(true)});
}

mx::array logits_of(const models::Model& model) {
  models::CacheOptions options;
  options.per_layer = true;
  auto caches = model.make_cache(options);
  std::vector<int32_t> ids;
  for (int i = 0; i < 16; ++i) {
    ids.push_back((i * 11 + 5) % 96);
  }
  mx::array logits =
      model.forward(mx::array(ids.data(), {1, 16}, mx::int32), caches);
  mx::eval(logits);
  return logits;
}

mx::array adapted_logits(const fs::path& folder, const fs::path& adapter) {
  ModelPtr model = load(folder);
  MountedAdapters mounted(model, models::selection(true));
  mounted.mount("x", adapter);
  auto rows = adapters_of_rows({mounted.find("x")});
  nn::AdapterScope scope(rows.get());
  return logits_of(*model);
}

// A base model and an adapter in a folder of their own.
class Fusing : public testing::Test {
 protected:
  void write_base(
      const std::optional<hub::Quantization>& q,
      const Json& config = llama_config()) {
    hub::write_mlx_checkpoint(
        TextCheckpoint(models::random_checkpoint(config, q)),
        base());
  }
  std::vector<LowRank> changes(bool dora, float size = 1) const {
    std::vector<LowRank> all = {
        random_change("model.layers.0.self_attn.o_proj", 64, 64, 4, 1, dora),
        random_change("model.layers.1.mlp.up_proj", 64, 128, 4, 2, dora)};
    for (LowRank& one : all) {
      one.scale = size;
    }
    return all;
  }
  FuseReport fuse(const FuseOptions& options = {}) {
    fs::remove_all(out());
    return fuse_adapter(
        hub::open_checkpoint(base()),
        adapter(),
        out(),
        options);
  }
  std::string refusal(const FuseOptions& options = {}) {
    try {
      fuse(options);
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(out()));
      EXPECT_LE(std::distance(fs::directory_iterator(root_.path()), {}), 2);
      return error.what();
    }
    return "";
  }
  fs::path base() const {
    return root_.path() / "base";
  }
  fs::path adapter() const {
    return root_.path() / "adapter";
  }
  fs::path out() const {
    return root_.path() / "out";
  }
  void make_adapter(const std::vector<LowRank>& all) {
    fs::create_directories(adapter());
    write_mlx_lm(adapter(), all);
  }

 private:
  TemporaryFolder root_;
};

const hub::Quantization kFourBits{32, 4, "affine"};

TEST_F(Fusing, DenseAndDequantizedEqualTheAdapterOnTheFly) {
  for (bool quantized : {false, true}) {
    for (bool dora : {false, true}) {
      write_base(quantized ? std::optional(kFourBits) : std::nullopt);
      make_adapter(changes(dora));
      FuseOptions options;
      options.dequantize = quantized;
      options.max_error = 0;  // of quantizing
      FuseReport report = fuse(options);
      EXPECT_EQ(report.weights.size(), 2u);
      EXPECT_NEAR(report.survives, 1, 1e-3);
      EXPECT_LT(report.error, 1e-3);
      EXPECT_EQ(report.weights[0].bits, 0);
      mx::array expected = adapted_logits(base(), adapter());
      EXPECT_LT(relative_error(logits_of(*load(out())), expected), 1e-3f);
      EXPECT_GT(relative_error(logits_of(*load(base())), expected), 1e-2f);
      auto written = hub::open_checkpoint(out());
      EXPECT_FALSE(written->config().contains("quantization"));
      EXPECT_EQ(written->text().tokenizer_json.find("\"version\""), 1u);
    }
  }
}

// The step of a group is known from its scale: a tenth of it does not survive.
TEST_F(Fusing, AChangeOfATenthOfAStepIsLostAndSaid) {
  write_base(kFourBits);
  auto all = changes(false, 1);
  all.erase(all.begin());
  std::string name = all[0].module + ".weight";
  hub::Weight weight =
      hub::open_checkpoint(base())->load(name, hub::LoadDtype{});
  float step = mx::mean(mx::abs(*weight.scales)).item<float>();
  mx::array delta = mx::matmul(all[0].a, all[0].b);
  float size = mx::sqrt(mx::mean(mx::square(delta))).item<float>();
  all[0].scale = 0.1f * step / size;
  make_adapter(all);
  std::string message = refusal();
  EXPECT_NE(message.find("--dequantize"), std::string::npos) << message;
  FuseOptions options;
  options.force = true;
  FuseReport report = fuse(options);
  ASSERT_EQ(report.weights.size(), 1u);
  EXPECT_EQ(report.weights[0].name, name);
  EXPECT_EQ(report.weights[0].bits, 4);
  EXPECT_LT(report.survives, 0.6);
  EXPECT_GT(report.error, 0.7);
  options.force = false;
  options.bits = 8;
  report = fuse(options);
  EXPECT_GT(report.survives, 0.9);
  EXPECT_LT(report.error, 0.5);
  EXPECT_EQ(report.weights[0].bits, 8);
  load(out());
  options.bits.reset();
  options.dequantize = true;
  EXPECT_LT(fuse(options).error, 1e-3);
}

TEST_F(Fusing, WhatIsQuantizedAgainIsWhatIsReported) {
  write_base(kFourBits);
  make_adapter(changes(false, 2));
  FuseReport report = fuse();
  EXPECT_GT(report.survives, 0.9);
  EXPECT_LT(report.error, 0.5);
  mx::array expected = adapted_logits(base(), adapter());
  mx::array got = logits_of(*load(out()));
  EXPECT_LT(relative_error(got, expected), 0.3f);
  EXPECT_GT(relative_error(logits_of(*load(base())), expected), 0.5f);
  FuseOptions strict;
  strict.max_error = 1e-6;
  EXPECT_NE(refusal(strict), "");
  // What the adapter does not touch has the same bytes.
  SafetensorsFile before(base() / "model.safetensors");
  fuse();
  SafetensorsFile written(out() / "model.safetensors");
  ASSERT_EQ(written.entries().size(), before.entries().size());
  int same = 0;
  for (const SafetensorsEntry& entry : before.entries()) {
    const SafetensorsEntry* other = written.find(entry.name);
    ASSERT_TRUE(other) << entry.name;
    bool equal = same_bits(before.load(entry), written.load(*other));
    bool touched =
        entry.name.find("0.self_attn.o_proj.") != std::string::npos ||
        entry.name.find("1.mlp.up_proj.") != std::string::npos;
    EXPECT_NE(equal, touched) << entry.name;
    same += equal ? 1 : 0;
  }
  EXPECT_GT(same, 20);
}

TEST_F(Fusing, MatricesOfSeveralPartsExpertsAndEmbeddings) {
  write_base(std::nullopt, llama_config("phi3"));
  Json experts = parse_json(
      R"({"moe_intermediate_size":32,"head_dim":16,"num_experts":4,
          "num_experts_per_tok":2,"norm_topk_prob":true,
          "decoder_sparse_step":1,"mlp_only_layers":[],"rope_theta":1e4})",
      "config.json");
  for (bool mixture : {false, true}) {
    std::vector<LowRank> all;
    if (mixture) {
      Json config = llama_config("qwen3_moe");
      config.update(experts);
      write_base(std::nullopt, config);
      all = {
          random_change("model.embed_tokens", 96, 64, 4, 1),
          {"model.layers.1.mlp.switch_mlp.up_proj",
           noise({4, 3, 64}, 5, 0.3f),
           noise({4, 32, 3}, 6, 0.3f),
           1.5f,
           std::nullopt}};
      for (LowRank& one : all) {
        one.scale = 1.5f;
      }
      all[0].a = mx::slice(all[0].a, {0, 0}, {96, 3});
      all[0].b = mx::slice(all[0].b, {0, 0}, {3, 64});
    } else {
      all = {
          random_change("model.layers.0.self_attn.qkv_proj", 64, 128, 4, 1),
          random_change("model.layers.1.mlp.gate_up_proj", 64, 256, 4, 2)};
    }
    make_adapter(all);
    fuse();
    mx::array expected = adapted_logits(base(), adapter());
    EXPECT_LT(relative_error(logits_of(*load(out())), expected), 1e-3f);
    EXPECT_GT(relative_error(logits_of(*load(base())), expected), 1e-2f);
  }
}

// As published files have them, one tensor for each expert.
TEST_F(Fusing, ExpertsThatAreTensorsOfTheirOwn) {
  Json config = llama_config("qwen3_moe");
  config.update(
      {{"moe_intermediate_size", 32},
       {"head_dim", 16},
       {"num_experts", 4},
       {"num_experts_per_tok", 2},
       {"norm_topk_prob", true},
       {"decoder_sparse_step", 1},
       {"mlp_only_layers", Json::array()},
       {"rope_theta", 1e4}});
  models::FakeCheckpoint checkpoint = models::random_checkpoint(config);
  auto tensors = checkpoint.tensors();
  for (const auto& tensor : tensors) {
    size_t at = tensor.name.find("switch_mlp.");
    if (at == std::string::npos) {
      continue;
    }
    mx::array stack = checkpoint.load(tensor.name, {}).weight;
    for (int expert = 0; expert < 4; ++expert) {
      checkpoint.add(
          fmt::format(
              "{}experts.{}.{}",
              tensor.name.substr(0, at),
              expert,
              tensor.name.substr(at + 11)),
          mx::take(stack, expert, 0));
    }
    checkpoint.remove(tensor.name);
  }
  hub::write_mlx_checkpoint(TextCheckpoint(checkpoint), base());
  make_adapter(
      {{"model.layers.1.mlp.switch_mlp.up_proj",
        noise({4, 3, 64}, 5, 0.3f),
        noise({4, 32, 3}, 6, 0.3f),
        1.5f,
        std::nullopt}});
  FuseReport report = fuse();
  EXPECT_EQ(report.weights.size(), 4u);
  mx::array expected = adapted_logits(base(), adapter());
  EXPECT_LT(relative_error(logits_of(*load(out())), expected), 1e-3f);
  EXPECT_GT(relative_error(logits_of(*load(base())), expected), 1e-2f);
}

TEST_F(Fusing, AllWeightsOfAFullFineTune) {
  write_base(kFourBits);
  std::string name = "model.layers.1.mlp.up_proj.weight";
  mx::array wanted = noise({128, 64}, 3, 0.2f);
  fs::create_directories(adapter());
  write_safetensors(adapter() / "adapters.safetensors", {{name, wanted}});
  write_config(
      adapter(),
      {{"fine_tune_type", "full"}, {"lora_parameters", nullptr}});
  FuseOptions options;
  options.dequantize = true;
  fuse(options);
  mx::array got =
      hub::open_checkpoint(out())->load(name, hub::LoadDtype{}).weight;
  EXPECT_LT(relative_error(got, wanted), 1e-6f);
  write_safetensors(adapter() / "adapters.safetensors", {{"x", wanted}});
  EXPECT_NE(refusal(options), "");
}

TEST_F(Fusing, WhatCannotBeFusedIsRefused) {
  write_base(kFourBits);
  EXPECT_NE(refusal(), "");  // there is no adapter
  make_adapter({random_change("model.layers.7.mlp.up_proj", 64, 128, 4, 2)});
  EXPECT_NE(refusal(), "");
  make_adapter({random_change("model.layers.1.mlp.up_proj", 96, 128, 4, 2)});
  EXPECT_NE(refusal(), "");
  make_adapter(changes(false));
  FuseOptions options;
  options.bits = 7;
  EXPECT_NE(refusal(options), "");
  options.bits = 8;
  options.dequantize = true;
  EXPECT_NE(refusal(options), "");
  // Nothing is replaced.
  fs::create_directories(out());
  std::ofstream(out() / "mine") << "x";
  auto into = [&] {
    fuse_adapter(hub::open_checkpoint(base()), adapter(), out(), {});
  };
  EXPECT_THROW(into(), Error);
  EXPECT_TRUE(fs::exists(out() / "mine"));
  fs::remove(out() / "mine");
  into();
  EXPECT_TRUE(fs::exists(out() / "config.json"));
}

// An adapter that was never trained leaves every byte as it is.
TEST_F(Fusing, AChangeOfNothingLeavesQuantizedWeightsAlone) {
  write_base(kFourBits);
  auto all = changes(false);
  for (LowRank& one : all) {
    one.b = mx::zeros_like(one.b);
  }
  make_adapter(all);
  FuseReport report = fuse();
  EXPECT_TRUE(report.weights.empty());
  EXPECT_EQ(report.error, 0);
  EXPECT_TRUE(same_bits(logits_of(*load(out())), logits_of(*load(base()))));
}

}  // namespace
}  // namespace mlxx::adapters
