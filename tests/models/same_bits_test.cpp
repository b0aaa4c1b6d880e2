// On the CPU everything is computed row by row: a token
// has the same logits, to the last bit, in every batch, prompt split and with
// any number of threads.
#include <gtest/gtest.h>

#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

constexpr int kTokens = 40;

Json config() {
  return parse_json(
      R"({"model_type":"llama","vocab_size":96,"hidden_size":64,
          "intermediate_size":128,"num_hidden_layers":3,
          "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
          "rms_norm_eps":1e-5,"attention_bias":true,
          "tie_word_embeddings":true})",
      "config.json");
}

mx::array logits_of(
    const Model& model,
    const mx::array& ids,
    const std::vector<int>& pieces) {
  auto cache = model.make_cache({});
  std::vector<mx::array> parts;
  int at = 0;
  for (int n : pieces) {
    mx::array piece = mx::slice(ids, {0, at}, {ids.shape(0), at + n});
    parts.push_back(model.forward(piece, cache));
    at += n;
  }
  return mx::concatenate(parts, 1);
}

void expect_same_bits(
    const FakeCheckpoint& checkpoint,
    const std::vector<kernels::InstructionSet>& sets =
        kernels::available_instruction_sets()) {
  mx::array ids =
      mx::random::randint(0, 96, {3, kTokens}, mx::int32, mx::random::key(1));
  for (auto set : sets) {
    std::optional<mx::array> expected;
    for (int threads : {3, 1}) {
      LoadOptions options;
      options.kernels = kernels::Selection{
          .instruction_set = set,
          .threads = std::make_shared<ThreadPool>(threads)};
      auto model = load_model(checkpoint, options);
      mx::array batch = logits_of(*model, ids, {kTokens});
      if (!expected) {
        expected = batch;
      }
      EXPECT_TRUE(same_bits(batch, *expected)) << threads << " threads";
      // More threads than processors are slow; the split is what differs.
      if (threads > 1) {
        continue;
      }
      mx::array row = mx::slice(ids, {1, 0}, {2, kTokens});
      mx::array alone =
          mx::slice(*expected, {1, 0, 0}, {2, kTokens, batch.shape(2)});
      for (const auto& pieces :
           {std::vector<int>{kTokens},
            std::vector<int>{30, 9, 1},
            std::vector<int>{7, 33},
            std::vector<int>(kTokens, 1)}) {
        EXPECT_TRUE(same_bits(logits_of(*model, row, pieces), alone))
            << kernels::to_string(set) << ", first piece " << pieces[0];
      }
    }
  }
}

TEST(SameBits, OfQuantizedWeightsWhateverTheCompany) {
  expect_same_bits(
      random_checkpoint(config(), hub::Quantization{32, 4, "affine"}));
}

TEST(SameBits, OfDenseWeightsWhateverTheCompany) {
  expect_same_bits(random_checkpoint(config(), std::nullopt, mx::bfloat16));
}

// Layers of every kind that carries a state, between ones that do not.
TEST(SameBits, OfRecurrentFamiliesWhateverTheCompany) {
  for (const char* type :
       {"falcon_h1",
        "granitemoehybrid",
        "lfm2",
        "lfm2_moe",
        "mamba2",
        "nemotron_h",
        "qwen3_5",
        "qwen3_next"}) {
    SCOPED_TRACE(type);
    Json config = parse_json(find_model(type).tiny_config, "tiny");
    expect_same_bits(
        random_checkpoint(config, hub::Quantization{32, 4, "affine"}),
        {kernels::available_instruction_sets().back()});
  }
}

}  // namespace
}  // namespace mlxx::models
