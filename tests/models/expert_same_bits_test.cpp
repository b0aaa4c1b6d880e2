// With our CPU kernels a token of a model with experts, latent attention or
// attention in chunks has the same bits however its prompt is split and
// whatever else is in the batch.
#include <gtest/gtest.h>

#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

constexpr int kTokens = 40;

mx::array in_pieces(
    const Model& model,
    const mx::array& ids,
    const std::vector<int>& lengths) {
  auto cache = model.make_cache({});
  std::vector<mx::array> parts;
  int at = 0;
  for (int n : lengths) {
    parts.push_back(
        model.forward(mx::slice(ids, {0, at}, {ids.shape(0), at + n}), cache));
    at += n;
  }
  return mx::concatenate(parts, 1);
}

TEST(ExpertModels, GiveATokenTheSameBitsInEveryCompany) {
  for (const char* type :
       {"mixtral",
        "qwen2_moe",
        "qwen3_moe",
        "olmoe",
        "granitemoe",
        "gpt_oss",
        "glm4_moe",
        "deepseek_v3",
        "minimax",
        "llama4_text",
        "llama4"}) {
    auto checkpoint = random_checkpoint(
        parse_json(find_model(type).tiny_config, "tiny"),
        hub::Quantization{32, 4, "affine"});
    auto model =
        load_model(checkpoint, LoadOptions{.kernels = selection(false)});
    int vocabulary = model->summary().vocab_size;
    mx::array ids = mx::random::randint(
        0,
        vocabulary,
        {1, kTokens},
        mx::int32,
        mx::random::key(1));
    mx::array whole = in_pieces(*model, ids, {kTokens});
    EXPECT_TRUE(same_bits(in_pieces(*model, ids, {33, 1, 2, 1, 3}), whole))
        << type;
    mx::array batch = in_pieces(*model, mx::repeat(ids, 8, 0), {30, 10});
    EXPECT_TRUE(
        same_bits(mx::slice(batch, {7, 0, 0}, {8, kTokens, vocabulary}), whole))
        << type;
  }
}

}  // namespace
}  // namespace mlxx::models
