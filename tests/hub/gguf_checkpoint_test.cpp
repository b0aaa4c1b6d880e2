#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/hub/checkpoint.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx::hub {
namespace {

class GgufModel : public ::testing::Test {
 protected:
  std::shared_ptr<const Checkpoint> open(const GgufBuilder& builder) {
    return open_checkpoint(folder_.write("model.gguf", builder.build()));
  }
  void expect_error(
      const GgufBuilder& builder,
      const std::string& kind,
      const std::string& part) {
    std::string message = error_of([&] { open(builder); });
    EXPECT_TRUE(message.starts_with(kind + ": ")) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }

  TemporaryFolder folder_;
};

const TensorInfo* find(const Checkpoint& checkpoint, const std::string& name) {
  for (const auto& tensor : checkpoint.tensors()) {
    if (tensor.name == name) {
      return &tensor;
    }
  }
  return nullptr;
}

TEST_F(GgufModel, ConfigHasTheKeysOfHuggingFace) {
  auto model = open(tiny_llama());
  EXPECT_EQ(model->format(), "gguf");
  Json expected = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"hidden_act", "silu"},
      {"vocab_size", 96},
      {"hidden_size", 64},
      {"num_hidden_layers", 1},
      {"intermediate_size", 96},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"head_dim", 16},
      {"rms_norm_eps", static_cast<double>(1e-5f)},
      {"max_position_embeddings", 512},
      {"rope_theta", 10000.0},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"tie_word_embeddings", true},
      {"bos_token_id", 0},
      {"eos_token_id", 1}};
  EXPECT_EQ(model->config(), expected);
}

TEST_F(GgufModel, TensorsHaveTheNamesOfHuggingFace) {
  GgufBuilder b = tiny_llama();
  b.tensor("output.weight", {64, 96}, 1, std::string(96 * 64 * 2, '\0'));
  b.tensor("blk.0.attn_q.bias", {64}, 0, std::string(256, '\0'));
  b.tensor("blk.0.ffn_gate.bias", {96}, 0, std::string(384, '\0'));
  auto model = open(b);
  EXPECT_EQ(model->config()["tie_word_embeddings"], false);
  EXPECT_EQ(model->config()["attention_bias"], true);
  EXPECT_EQ(model->config()["mlp_bias"], true);
  std::vector<std::string> names;
  for (const auto& tensor : model->tensors()) {
    names.push_back(tensor.name);
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "lm_head.weight",
          "model.embed_tokens.weight",
          "model.layers.0.input_layernorm.weight",
          "model.layers.0.mlp.down_proj.weight",
          "model.layers.0.mlp.gate_proj.bias",
          "model.layers.0.mlp.gate_proj.weight",
          "model.layers.0.mlp.up_proj.weight",
          "model.layers.0.post_attention_layernorm.weight",
          "model.layers.0.self_attn.k_proj.weight",
          "model.layers.0.self_attn.o_proj.weight",
          "model.layers.0.self_attn.q_proj.bias",
          "model.layers.0.self_attn.q_proj.weight",
          "model.layers.0.self_attn.v_proj.weight",
          "model.norm.weight"}));
  const auto* q = find(*model, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(q->shape, (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(q->stored, "Q4_1");
  EXPECT_EQ(q->nbytes, 64u * 2 * 20);
  EXPECT_EQ(q->quantization->bits, 4);
  EXPECT_EQ(q->quantization->group_size, 32);
  EXPECT_EQ(q->quantization->mode, "affine");
  EXPECT_EQ(find(*model, "model.embed_tokens.weight")->quantization->bits, 8);
  EXPECT_FALSE(find(*model, "model.norm.weight")->quantization);
  EXPECT_EQ(find(*model, "lm_head.weight")->stored, "F16");
}

TEST_F(GgufModel, OnlyQueriesAndKeysAreReordered) {
  GgufBuilder b = tiny_llama();
  std::vector<float> numbers;
  for (int i = 0; i < 64; ++i) {
    numbers.push_back(static_cast<float>(i));
  }
  b.tensor("blk.0.attn_q.bias", {64}, 0, floats(numbers));
  b.tensor("blk.0.attn_output.bias", {64}, 0, floats(numbers));
  auto model = open(b);
  auto at = [&](const char* name, int i) {
    mx::array value = model->load(name, {}).weight;
    return value.data<float>()[i];
  };
  // Heads of 16: row 1 of a head is row 2 of the file, row 8 is row 1.
  EXPECT_EQ(at("model.layers.0.self_attn.q_proj.bias", 1), 2.0f);
  EXPECT_EQ(at("model.layers.0.self_attn.q_proj.bias", 8), 1.0f);
  EXPECT_EQ(at("model.layers.0.self_attn.q_proj.bias", 17), 18.0f);
  EXPECT_EQ(at("model.layers.0.self_attn.o_proj.bias", 1), 1.0f);
  for (const auto& tensor : model->tensors()) {
    Weight w = model->load(tensor.name, {.scales = mx::float32});
    EXPECT_EQ(w.scales.has_value(), tensor.quantization.has_value());
  }
  EXPECT_ERROR(model->load("other", {}), "not_found", "'other'");
}

TEST_F(GgufModel, EveryEndOfTurnTokenIsInTheGenerationConfig) {
  auto model = open(tiny_llama());
  // The file names <|im_end|> as eos; <|endoftext|> is known by its text.
  EXPECT_EQ(model->config()["eos_token_id"], 1);
  EXPECT_EQ(model->generation_config()["eos_token_id"], Json({0, 1}));
  GgufBuilder b = tiny_llama();
  b.u32("tokenizer.ggml.eot_token_id", 7);
  b.u32("tokenizer.ggml.eom_token_id", 4000);  // outside: left out
  EXPECT_EQ(open(b)->generation_config()["eos_token_id"], Json({0, 1, 7}));
}

TEST_F(GgufModel, WeightsWithoutATokenizerOpen) {
  GgufBuilder b;
  b.string("general.architecture", "llama");
  expect_error(b, "bad_file", "'llama.embedding_length' is missing");
  for (const char* key :
       {"llama.block_count",
        "llama.context_length",
        "llama.attention.head_count",
        "llama.feed_forward_length"}) {
    b.u32(key, 4);
  }
  b.u32("llama.embedding_length", 64);
  expect_error(b, "bad_file", "'token_embd.weight' is missing");
  b.tensor("token_embd.weight", {64, 2}, 0, std::string(512, '\0'));
  expect_error(b, "bad_file", "layer_norm_rms_epsilon' is missing");
  b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  auto model = open(b);
  EXPECT_TRUE(model->generation_config().empty());
  EXPECT_ERROR(model->text(), "bad_file", "tokenizer.ggml.tokens' is missing");
}

TEST_F(GgufModel, OtherArchitecturesAndTensorsAreNamed) {
  GgufBuilder b;
  b.string("general.architecture", "rwkv7");
  expect_error(
      b,
      "unsupported",
      "'rwkv7' is not known for GGUF files; known: ");
  expect_error(GgufBuilder(), "bad_file", "'general.architecture' is missing");
  for (const char* name :
       {"blk.0.attn_qkv.weight",
        "blk.00.attn_q.weight",
        "blk.x.attn_q.weight",
        "other",
        "output.scale"}) {
    GgufBuilder c = tiny_llama();
    c.tensor(name, {1}, 0, "1234");
    expect_error(
        c,
        "unsupported",
        std::string("tensor '") + name + "' is not known in the architecture");
  }
  GgufBuilder k = tiny_llama();
  k.tensor("blk.1.attn_v.weight", {256, 1}, 16, std::string(66, '\0'));
  expect_error(k, "unsupported", "is stored as IQ2_XXS");
  GgufBuilder s = tiny_llama();
  s.value("split.count", 2, GgufBuilder::raw<uint16_t>(3));
  expect_error(s, "unsupported", "one of 3 parts of a split GGUF file");
}

TEST_F(GgufModel, FormsThatLlamaDoesNotHaveAreRefused) {
  struct Case {
    const char* key;
    uint32_t value;
    const char* kind;
    const char* part;
  };
  for (const Case& c :
       {Case{"llama.expert_count", 8, "unsupported", "mixture of experts"},
        Case{"llama.rope.dimension_count", 8, "unsupported", "is 8, the"},
        Case{"llama.attention.value_length", 8, "unsupported", "is 8, the"},
        Case{"llama.attention.key_length", 7, "bad_file", "4 heads of 7"},
        Case{"llama.logit_scale", 2, "unsupported", "'llama.logit_scale'"}}) {
    GgufBuilder b = tiny_llama();
    b.u32(c.key, c.value);
    expect_error(b, c.kind, c.part);
  }
  // 32 rows of k are no heads of 24.
  GgufBuilder b = tiny_llama();
  b.u32("llama.attention.key_length", 24);
  expect_error(b, "bad_file", "holds no heads of 24");
}

// Scaling of positions ------------------------------------------------------

Json scaling_of(const Checkpoint& model) {
  return model.config().value("rope_scaling", Json());
}

TEST_F(GgufModel, RopeScalingKeysBecomeRopeScaling) {
  EXPECT_TRUE(scaling_of(*open(tiny_llama())).is_null());
  GgufBuilder linear = tiny_llama();
  linear.string("llama.rope.scaling.type", "linear");
  linear.f32("llama.rope.scaling.factor", 4.0f);
  EXPECT_EQ(
      scaling_of(*open(linear)),
      Json({{"rope_type", "linear"}, {"factor", 4.0}}));
  GgufBuilder old = tiny_llama();
  old.f32("llama.rope.scale_linear", 2.0f);
  EXPECT_EQ(scaling_of(*open(old))["factor"], 2.0);
  GgufBuilder yarn = tiny_llama();
  yarn.string("llama.rope.scaling.type", "yarn");
  yarn.f32("llama.rope.scaling.factor", 16.0f);
  expect_error(yarn, "bad_file", "original_context_length' is missing");
  yarn.u32("llama.rope.scaling.original_context_length", 4096);
  EXPECT_EQ(
      scaling_of(*open(yarn)),
      Json(
          {{"rope_type", "yarn"},
           {"factor", 16.0},
           {"original_max_position_embeddings", 4096}}));
  GgufBuilder none = tiny_llama();
  none.string("llama.rope.scaling.type", "none");
  EXPECT_TRUE(scaling_of(*open(none)).is_null());
  GgufBuilder other = tiny_llama();
  other.string("llama.rope.scaling.type", "magic");
  expect_error(other, "unsupported", "rope scaling 'magic'");
  GgufBuilder bad = tiny_llama();
  bad.string("llama.rope.scaling.type", "linear");
  bad.f32("llama.rope.scaling.factor", 0.0f);
  expect_error(bad, "bad_file", "above 0");
}

TEST_F(GgufModel, Llama3FactorsAreRecognised) {
  // Llama 3.1's rule with factor 8 and a base of 10,000 over heads of 16:
  // wavelengths 2 pi 10000^(i/8) from 6.3 to 19,869 against 2,048 and 8,192.
  std::vector<float> factors;
  for (int i = 0; i < 8; ++i) {
    double wave = 2 * M_PI * std::pow(10000.0, i / 8.0);
    double smooth = (8192 / wave - 1) / 3;
    factors.push_back(static_cast<float>(
        wave < 2048       ? 1
            : wave > 8192 ? 8
                          : 1 / ((1 - smooth) / 8 + smooth)));
  }
  ASSERT_EQ(factors[0], 1.0f);
  ASSERT_EQ(factors[7], 8.0f);
  GgufBuilder b = tiny_llama();
  b.tensor("rope_freqs.weight", {8}, 0, floats(factors));
  auto model = open(b);
  EXPECT_EQ(
      scaling_of(*model),
      Json(
          {{"rope_type", "llama3"},
           {"factor", 8.0},
           {"low_freq_factor", 1.0},
           {"high_freq_factor", 4.0},
           {"original_max_position_embeddings", 8192}}));
  EXPECT_EQ(find(*model, "rope_freqs.weight"), nullptr);
}

TEST_F(GgufModel, OtherFactorsBecomeALongropeListOrAreRefused) {
  GgufBuilder b = tiny_llama();
  b.tensor("rope_freqs.weight", {8}, 0, floats({1, 2, 3, 4, 5, 6, 7, 8}));
  Json scaling = scaling_of(*open(b));
  EXPECT_EQ(scaling["rope_type"], "longrope");
  EXPECT_EQ(scaling["long_factor"], Json({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(scaling["original_max_position_embeddings"], 512);
  GgufBuilder ones = tiny_llama();
  ones.tensor("rope_freqs.weight", {8}, 0, floats(std::vector<float>(8, 1)));
  EXPECT_TRUE(scaling_of(*open(ones)).is_null());
  GgufBuilder short_list = tiny_llama();
  short_list.tensor("rope_freqs.weight", {4}, 0, floats({1, 1, 1, 1}));
  expect_error(short_list, "bad_file", "must hold 8 F32 numbers");
  GgufBuilder zero = tiny_llama();
  zero.tensor("rope_freqs.weight", {8}, 0, floats(std::vector<float>(8, 0)));
  expect_error(zero, "bad_file", "must be above 0");
}

}  // namespace
}  // namespace mlxx::hub
