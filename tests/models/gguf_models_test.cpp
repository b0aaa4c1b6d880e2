// Models of GGUF files give the logits of the same weights under Hugging
// Face's names with the config.json that Hugging Face would have.
#include <gtest/gtest.h>

#include "mlxx/hub/checkpoint.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

using hub::floats;
using hub::GgufBuilder;

// A family as both sides have it: 64 wide, 2 layers, 4 heads of 16, 2
// key-value heads, an MLP of 96, 96 tokens.
struct Family {
  std::string architecture;
  std::string config;  // what Hugging Face's has beside the shared keys
  std::vector<std::pair<std::string, double>> keys;  // what GGUF's has
  // Of one layer, without ".weight"; shapes in Hugging Face's order.
  struct Tensor {
    std::string gguf;
    std::string hub;
    std::vector<int> shape;
  };
  std::vector<Tensor> layer;
  bool has_head;
  bool norms_plus_one = false;
};

const std::vector<Family::Tensor> kSeparate = {
    {"attn_norm", "input_layernorm", {64}},
    {"attn_q", "self_attn.q_proj", {64, 64}},
    {"attn_k", "self_attn.k_proj", {32, 64}},
    {"attn_v", "self_attn.v_proj", {32, 64}},
    {"attn_output", "self_attn.o_proj", {64, 64}},
    {"ffn_gate", "mlp.gate_proj", {96, 64}},
    {"ffn_up", "mlp.up_proj", {96, 64}},
    {"ffn_down", "mlp.down_proj", {64, 96}}};

std::vector<Family::Tensor> separate(
    std::initializer_list<Family::Tensor> more) {
  auto all = kSeparate;
  all.insert(all.end(), more);
  return all;
}

std::vector<Family> families() {
  Family::Tensor mlp_norm{"ffn_norm", "post_attention_layernorm", {64}};
  Family::Tensor q_norm{"attn_q_norm", "self_attn.q_norm", {16}};
  Family::Tensor k_norm{"attn_k_norm", "self_attn.k_norm", {16}};
  std::initializer_list<Family::Tensor> gemma_norms = {
      {"post_attention_norm", "post_attention_layernorm", {64}},
      {"ffn_norm", "pre_feedforward_layernorm", {64}},
      {"post_ffw_norm", "post_feedforward_layernorm", {64}}};
  auto gemma3 = separate(gemma_norms);
  gemma3.insert(gemma3.end(), {q_norm, k_norm});
  return {
      {"qwen2",
       R"({"model_type":"qwen2","tie_word_embeddings":true,
           "rope_theta":1000000.0})",
       {{"rope.freq_base", 1e6}},
       separate(
           {mlp_norm,
            {"attn_q.bias", "self_attn.q_proj.bias", {64}},
            {"attn_k.bias", "self_attn.k_proj.bias", {32}},
            {"attn_v.bias", "self_attn.v_proj.bias", {32}}}),
       false},
      {"qwen3",
       R"({"model_type":"qwen3","tie_word_embeddings":false,
           "rope_theta":1000000.0,"head_dim":16})",
       {{"rope.freq_base", 1e6}, {"attention.key_length", 16}},
       separate({mlp_norm, q_norm, k_norm}),
       true},
      {"gemma2",
       R"({"model_type":"gemma2","head_dim":16,"query_pre_attn_scalar":16,
           "attn_logit_softcapping":20.0,"final_logit_softcapping":10.0,
           "rope_theta":10000.0})",
       {{"attention.key_length", 16},
        {"attn_logit_softcapping", 20},
        {"final_logit_softcapping", 10},
        {"attention.sliding_window", 8}},
       separate(gemma_norms),
       false,
       true},
      {"gemma3",
       R"({"model_type":"gemma3_text","head_dim":16,"sliding_window":8,
           "query_pre_attn_scalar":16,"sliding_window_pattern":6,
           "rope_theta":1000000.0,"rope_local_base_freq":10000.0})",
       {{"attention.key_length", 16},
        {"rope.freq_base", 1e6},
        {"attention.sliding_window", 8}},
       gemma3,
       false,
       true},
      {"phi3",
       R"({"model_type":"phi3","tie_word_embeddings":false,
           "rope_theta":10000.0,"partial_rotary_factor":0.5,
           "original_max_position_embeddings":64,
           "rope_scaling":{"type":"longrope",
             "long_factor":[1,1.5,2,4],"short_factor":[1,1,1,1.25]}})",
       {{"rope.dimension_count", 8},
        {"rope.scaling.original_context_length", 64}},
       {{"attn_norm", "input_layernorm", {64}},
        {"attn_qkv", "self_attn.qkv_proj", {128, 64}},
        {"attn_output", "self_attn.o_proj", {64, 64}},
        mlp_norm,
        {"ffn_up", "mlp.gate_up_proj", {192, 64}},
        {"ffn_down", "mlp.down_proj", {64, 96}}},
       true}};
}

class GgufModels : public ::testing::Test {
 protected:
  // Adds one tensor to both.
  void add(
      const std::string& gguf,
      const std::string& hub,
      const std::vector<int>& shape,
      bool is_plus_one) {
    auto [next, used] = mx::random::split(key_);
    key_ = next;
    mx::Shape size(shape.begin(), shape.end());
    bool is_vector = shape.size() == 1;
    mx::array value = mx::multiply(
        mx::random::normal(size, mx::float32, 0.0f, 1.0f, used),
        mx::array(0.15f));
    if (is_vector && !is_plus_one && hub.ends_with("norm.weight")) {
      value = mx::add(value, mx::array(1.0f));
    }
    // As numbers of half precision are, so that one may be added and taken
    // away without loss.
    value = mx::astype(mx::astype(value, mx::float16), mx::float32);
    mx::eval(value);
    checkpoint_->add(hub, value);
    mx::array stored = is_plus_one && hub.ends_with("norm.weight")
        ? mx::add(value, mx::array(1.0f))
        : value;
    stored = mx::contiguous(stored);
    mx::eval(stored);
    std::vector<uint64_t> axes(shape.rbegin(), shape.rend());
    builder_.tensor(
        gguf,
        axes,
        0,
        floats({stored.data<float>(), stored.data<float>() + stored.size()}));
  }

  void build(const Family& family) {
    builder_ = {};
    key_ = mx::random::key(3);
    Json config = Json::parse(family.config);
    config.update(Json::parse(R"({"vocab_size":96,"hidden_size":64,
        "intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
        "num_key_value_heads":2,"rms_norm_eps":0.0000152587890625,
        "max_position_embeddings":256})"));
    checkpoint_.emplace(config);
    const std::string prefix = family.architecture + ".";
    builder_.string("general.architecture", family.architecture);
    builder_.u32(prefix + "block_count", 2);
    builder_.u32(prefix + "context_length", 256);
    builder_.u32(prefix + "embedding_length", 64);
    builder_.u32(prefix + "feed_forward_length", 96);
    builder_.u32(prefix + "attention.head_count", 4);
    builder_.u32(prefix + "attention.head_count_kv", 2);
    builder_.f32(
        prefix + "attention.layer_norm_rms_epsilon",
        0.0000152587890625f);
    for (const auto& [key, value] : family.keys) {
      bool is_count = key.ends_with("_length") || key.ends_with("_count") ||
          key.ends_with("_window");
      if (is_count) {
        builder_.u32(prefix + key, static_cast<uint32_t>(value));
      } else {
        builder_.f32(prefix + key, static_cast<float>(value));
      }
    }
    bool plus_one = family.norms_plus_one;
    add("token_embd.weight", "model.embed_tokens.weight", {96, 64}, plus_one);
    add("output_norm.weight", "model.norm.weight", {64}, plus_one);
    if (family.has_head) {
      add("output.weight", "lm_head.weight", {96, 64}, plus_one);
    }
    auto full = [](const std::string& name) {
      return name.ends_with(".bias") ? name : name + ".weight";
    };
    for (int layer = 0; layer < 2; ++layer) {
      for (const auto& t : family.layer) {
        add(fmt::format("blk.{}.{}", layer, full(t.gguf)),
            fmt::format("model.layers.{}.{}", layer, full(t.hub)),
            t.shape,
            plus_one);
      }
    }
    if (family.architecture == "phi3") {
      builder_
          .tensor("rope_factors_long.weight", {4}, 0, floats({1, 1.5, 2, 4}));
      builder_
          .tensor("rope_factors_short.weight", {4}, 0, floats({1, 1, 1, 1.25}));
    }
  }

  static mx::array logits(const hub::Checkpoint& checkpoint) {
    auto model = load_model(checkpoint);
    auto cache = model->make_cache({});
    std::vector<int32_t> ids;
    for (int i = 0; i < 20; ++i) {
      ids.push_back(i * 7 % 96);
    }
    mx::array result =
        model->forward(mx::array(ids.data(), {1, 20}, mx::int32), cache);
    mx::eval(result);
    return result;
  }

  TemporaryFolder folder_;
  GgufBuilder builder_;
  std::optional<FakeCheckpoint> checkpoint_;
  mx::array key_ = mx::random::key(3);
};

TEST_F(GgufModels, LogitsAreThoseOfHuggingFacesForm) {
  for (const Family& family : families()) {
    build(family);
    auto path = folder_.write("model.gguf", builder_.build());
    auto gguf = hub::open_checkpoint(path);
    for (const char* key :
         {"model_type", "head_dim", "sliding_window", "rope_scaling"}) {
      if (checkpoint_->config().contains(key)) {
        EXPECT_EQ(gguf->config()[key], checkpoint_->config()[key])
            << family.architecture << " " << key;
      }
    }
    mx::array got = logits(*gguf), expected = logits(*checkpoint_);
    EXPECT_TRUE(mx::array_equal(got, expected).item<bool>())
        << family.architecture;
    float largest = mx::max(mx::abs(expected)).item<float>();
    EXPECT_GT(largest, 0.01f) << family.architecture;
  }
}

TEST_F(GgufModels, TheLargestGemmasDivideByTheWidthPerHead) {
  for (auto [architecture, layers] :
       {std::pair("gemma2", 46), std::pair("gemma3", 62)}) {
    GgufBuilder b;
    std::string prefix = std::string(architecture) + ".";
    b.string("general.architecture", architecture);
    b.u32(prefix + "block_count", static_cast<uint32_t>(layers));
    b.u32(prefix + "context_length", 8192);
    b.u32(prefix + "embedding_length", 4608);
    b.u32(prefix + "feed_forward_length", 36864);
    b.u32(prefix + "attention.head_count", 32);
    b.u32(prefix + "attention.head_count_kv", 16);
    b.u32(prefix + "attention.key_length", 128);
    b.u32(prefix + "attention.sliding_window", 1024);
    b.f32(prefix + "attention.layer_norm_rms_epsilon", 1e-6f);
    b.tensor("token_embd.weight", {2, 2}, 0, std::string(16, '\0'));
    auto model = hub::open_checkpoint(folder_.write("m.gguf", b.build()));
    EXPECT_EQ(model->config()["query_pre_attn_scalar"], 144);
  }
}

TEST_F(GgufModels, FactorsOfPhiAreChecked) {
  auto all = families();
  const Family& phi = all.back();
  auto expect = [&](auto&& edit, const char* kind, const char* part) {
    build(phi);
    edit(builder_);
    auto path = folder_.write("model.gguf", builder_.build());
    std::string message = error_of([&] { hub::open_checkpoint(path); });
    EXPECT_TRUE(message.starts_with(kind)) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  // sqrt(1 + ln(256 / 64) / ln(64)) = 1.1547
  expect(
      [](auto& b) { b.f32("phi3.rope.scaling.attn_factor", 1.19f); },
      "unsupported",
      "must be 1.1547");
  build(phi);
  builder_.f32("phi3.rope.scaling.attn_factor", 1.154701f);
  EXPECT_NO_THROW(
      hub::open_checkpoint(folder_.write("ok.gguf", builder_.build())));
}

}  // namespace
}  // namespace mlxx::models
