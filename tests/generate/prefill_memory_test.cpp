#include <gtest/gtest.h>

#include "mlxx/core/memory.h"
#include "mlxx/generate/prefill.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::generate {
namespace {

constexpr int kStep = 2048;
constexpr int kPrompt = 3 * kStep;
constexpr int kVocabulary = 65536;

const Json kConfig = {
    {"model_type", "llama"},
    {"vocab_size", kVocabulary},
    {"hidden_size", 32},
    {"intermediate_size", 32},
    {"num_hidden_layers", 1},
    {"num_attention_heads", 1},
    {"num_key_value_heads", 1},
    {"max_position_embeddings", kPrompt},
    {"rms_norm_eps", 1e-5},
    {"tie_word_embeddings", true}};

// Logits of all tokens of one chunk would take four times what is allowed here.
TEST(Prefill, OfALongPromptComputesNoLogits) {
  constexpr size_t kAllowed = size_t{128} << 20;
  static_assert(kAllowed * 4 <= size_t{kStep} * kVocabulary * sizeof(float));
  auto checkpoint = models::random_checkpoint(kConfig);
  for (bool fallback : {false, true}) {
    models::LoadOptions options;
    options.kernels = models::selection(fallback);
    auto model = models::load_model(checkpoint, options);
    Sequence sequence;
    sequence.caches = model->make_cache({});
    std::vector<int32_t> prompt(kPrompt);
    for (int i = 0; i < kPrompt; ++i) {
      prompt[i] = i * 7919 % kVocabulary;
    }
    mx::synchronize();
    reset_peak_memory();
    size_t before = memory_use().active;
    ASSERT_TRUE(prefill(*model, prompt, sequence, {.step_size = kStep}));
    EXPECT_LT(memory_use().peak, before + kAllowed) << fallback;
    EXPECT_EQ(std::ssize(sequence.tokens), kPrompt - 1);
    EXPECT_EQ(sequence.caches[0]->offset(), kPrompt - 1);
  }
}

}  // namespace
}  // namespace mlxx::generate
