#include <gtest/gtest.h>

#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

Json small_config() {
  return parse_json(
      R"({"model_type":"llama","vocab_size":64,"hidden_size":64,
          "intermediate_size":64,"num_hidden_layers":2,
          "num_attention_heads":2,"rms_norm_eps":1e-5,
          "tie_word_embeddings":true})",
      "config.json");
}

mx::array logits_of(const hub::Checkpoint& checkpoint, bool fallback) {
  auto model =
      load_model(checkpoint, LoadOptions{.kernels = selection(fallback)});
  int ids[] = {1, 2, 3, 4, 5};
  auto cache = model->make_cache({});
  return model->forward(mx::array(ids, {1, 5}, mx::int32), cache);
}

TEST(Dtypes, FallbackComputesInTheStoredOne) {
  for (auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    auto checkpoint = random_checkpoint(small_config(), std::nullopt, dtype);
    EXPECT_EQ(logits_of(checkpoint, true).dtype(), dtype);
  }
}

TEST(Dtypes, TheCpuComputesInFloat32) {
  for (auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    for (bool quantized : {false, true}) {
      std::optional<hub::Quantization> q;
      if (quantized) {
        q = hub::Quantization{32, 4, "affine"};
      }
      auto checkpoint = random_checkpoint(small_config(), q, dtype);
      mx::array fast = logits_of(checkpoint, false);
      EXPECT_EQ(fast.dtype(), mx::float32);
      // As close as the stored precision and that of activations allow.
      float bound = dtype == mx::float32 ? (quantized ? 1e-3f : 5e-4f)
          : dtype == mx::float16         ? 1e-2f
                                         : 5e-2f;
      EXPECT_LT(relative_error(fast, logits_of(checkpoint, true)), bound);
    }
  }
}

TEST(Dtypes, GgufIsComputedInFloat32OnTheCpuInBothModes) {
  auto stored = random_checkpoint(small_config(), std::nullopt, mx::float16);
  FakeCheckpoint gguf(small_config(), "gguf");
  for (const auto& info : stored.tensors()) {
    gguf.add(info.name, stored.load(info.name, {}).weight);
  }
  EXPECT_EQ(logits_of(gguf, true).dtype(), mx::float32);
  EXPECT_EQ(logits_of(gguf, false).dtype(), mx::float32);
}

}  // namespace
}  // namespace mlxx::models
