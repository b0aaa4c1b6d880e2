#include "mlxx/train/full_parameters.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/models/load_trainable.h"
#include "mlxx/train/save_trained.h"
#include "tests/kernels/relative_error.h"
#include "tests/train/tiny_models.h"

namespace mlxx::train {
namespace {

TEST(FullParameters, TrainTheLastLayersOrEverything) {
  auto checkpoint = models::random_checkpoint(llama_config(), kFourBits);
  for (bool fallback : {true, false}) {
    models::LoadOptions load{.kernels = models::selection(fallback)};
    auto model = models::load_trainable_model(checkpoint, load);
    mx::array plain = forward(*model);
    EXPECT_LT(
        relative_error(plain, forward(*models::load_model(checkpoint, load))),
        1e-3f);
    FullParameters last(model, {.num_layers = 1});
    EXPECT_EQ(last.names().size(), 13u);
    for (size_t i = 0; i < last.names().size(); ++i) {
      EXPECT_TRUE(last.names()[i].starts_with("model.layers.2."));
      EXPECT_EQ(last.layer(i), 2);
    }
    FullParameters layers(model, {});
    EXPECT_EQ(layers.names().size(), 39u);
    FullParameters all(model, {.num_layers = -1, .everything = true});
    ASSERT_EQ(all.names().size(), 41u);
    EXPECT_EQ(all.layer(0), -1);
    EXPECT_EQ(all.layer(40), 3);
    for (const mx::array& gradient : gradients_of(*model, all)) {
      EXPECT_GT(mx::max(mx::abs(gradient)).item<float>(), 0);
    }
    EXPECT_TRUE(same_bits(forward(*model), plain));
    shake(last, 5, 0.05f);
    mx::array trained = forward(*model);
    EXPECT_GT(relative_error(trained, plain), 1e-3f);
    EXPECT_THROW(all.without([] {}), Error);
    EXPECT_THROW(FullParameters(model, {.num_layers = 4}), Error);
    EXPECT_THROW(
        FullParameters(model, {.num_layers = 1, .everything = true}),
        Error);
    TemporaryFolder folder;
    save_full(last, *model, folder.path(), "tiny");
    SafetensorsFile file(folder.path() / "adapters.safetensors");
    EXPECT_EQ(file.entries().size(), 13u);
  }
}

// mlx-lm's weights of phi3: query, key and value in one, gate and up in one.
TEST(FullParameters, AreSavedAsTheReferenceHasThem) {
  Json config = parse_json(
      R"({"model_type":"phi3","vocab_size":96,"hidden_size":64,
          "intermediate_size":128,"num_hidden_layers":2,
          "num_attention_heads":4,"num_key_value_heads":2,
          "rms_norm_eps":1e-5,"tie_word_embeddings":false,
          "max_position_embeddings":512,
          "original_max_position_embeddings":512})",
      "config.json");
  auto model =
      models::load_trainable_model(models::random_checkpoint(config), {});
  FullParameters weights(model, {.num_layers = 1});
  shake(weights, 5, 0.05f);
  TemporaryFolder folder;
  save_full(weights, *model, folder.path(), "tiny");
  SafetensorsFile file(folder.path() / "adapters.safetensors");
  EXPECT_EQ(file.entries().size(), 6u);
  std::string start = "model.layers.1.self_attn.";
  mx::array whole = file.load(*file.find(start + "qkv_proj.weight"));
  EXPECT_EQ(whole.shape(), (mx::Shape{128, 64}));
  auto value = [&](const std::string& name) {
    auto found = std::ranges::find(weights.names(), start + name);
    return weights.values().at(
        static_cast<size_t>(found - weights.names().begin()));
  };
  EXPECT_TRUE(same_bits(
      whole,
      mx::concatenate(
          {value("q_proj.weight"),
           value("k_proj.weight"),
           value("v_proj.weight")},
          0)));
}

}  // namespace
}  // namespace mlxx::train
