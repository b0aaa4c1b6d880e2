// What must not grow with the length of prompt or answer.
#include <gtest/gtest.h>

#include "mlxx/core/memory.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::models {
namespace {

Json config(int vocab_size) {
  Json json = parse_json(
      R"({"model_type":"llama","hidden_size":32,"intermediate_size":32,
          "num_hidden_layers":2,"num_attention_heads":2,"rms_norm_eps":1e-5,
          "tie_word_embeddings":true})",
      "config.json");
  json["vocab_size"] = vocab_size;
  return json;
}

void eval_all(const mx::array& value, const cache::CacheList& cache) {
  std::vector<mx::array> pending{value};
  for (const auto& layer : cache) {
    auto state = layer->state();
    pending.insert(pending.end(), state.begin(), state.end());
  }
  mx::eval(std::move(pending));
}

TEST(LongRun, PrefillNeverHoldsLogitsOfEveryToken) {
  constexpr int kVocabulary = 20000;
  constexpr int kPrompt = 512;
  auto checkpoint = random_checkpoint(config(kVocabulary));
  for (bool fallback : {true, false}) {
    auto model =
        load_model(checkpoint, LoadOptions{.kernels = selection(fallback)});
    auto cache = model->make_cache({});
    mx::array ids = mx::zeros({1, kPrompt}, mx::int32);
    clear_cache();
    reset_peak_memory();
    size_t before = memory_use().active;
    eval_all(model->forward_last(ids, cache), cache);
    size_t all_logits = size_t{4} * kPrompt * kVocabulary;
    EXPECT_LT(memory_use().peak - before, all_logits / 2);
  }
}

// Lengths and offsets kept as lazy arrays would build a graph without end.
TEST(LongRun, DecodingKeepsMemoryFlat) {
  auto checkpoint =
      random_checkpoint(config(64), hub::Quantization{32, 4, "affine"});
  auto model = load_model(checkpoint);
  auto cache = model->make_cache({.max_kv_size = 64});
  size_t early = 0;
  for (int step = 0; step < 3000; ++step) {
    int token = step % 64;
    mx::array ids(&token, {1, 1}, mx::int32);
    mx::eval(model->forward_last(ids, cache));
    if (step == 500) {
      early = memory_use().active;
    }
  }
  EXPECT_LE(memory_use().active, early + early / 10);
}

}  // namespace
}  // namespace mlxx::models
