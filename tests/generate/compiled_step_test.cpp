#include "mlxx/generate/compiled_step.h"

#include <gtest/gtest.h>

#include "mlxx/core/memory.h"
#include "mlxx/generate/token_stream.h"
#include "tests/generate/fake_model.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::generate {
namespace {

using models::Model;

constexpr int kVocab = 96;

// A llama of three layers; `changes` are members of its config.
Json config(const std::string& changes = "") {
  Json json = parse_json(
      R"({"model_type":"llama","vocab_size":96,"hidden_size":64,
          "intermediate_size":128,"num_hidden_layers":3,
          "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
          "rms_norm_eps":1e-5,"max_position_embeddings":1024,
          "tie_word_embeddings":true})",
      "config.json");
  json.update(parse_json("{" + changes + "}", "changes"));
  return json;
}

std::shared_ptr<const Model> load(
    const models::FakeCheckpoint& checkpoint,
    bool fallback) {
  models::LoadOptions options;
  options.kernels = models::selection(fallback);
  return models::load_model(checkpoint, options);
}

void feed(const Model& model, int tokens, cache::CacheList& caches) {
  mx::array prompt = mx::random::randint(
      0,
      kVocab,
      {1, tokens},
      mx::int32,
      mx::random::key(7));
  mx::eval(model.forward_last(prompt, caches));
}

mx::array token_at(int step) {
  return mx::array({(step * 31 + step * step) % kVocab}, {1, 1});
}

// Runs both for `steps` tokens after a prompt, comparing every logit.
void expect_equal_steps(
    const Model& model,
    CompiledStep& step,
    int steps,
    int prompt = 5,
    const models::CacheOptions& options = {.per_layer = true}) {
  auto expected_caches = model.make_cache(options);
  auto caches = model.make_cache(options);
  if (prompt > 0) {
    feed(model, prompt, expected_caches);
    feed(model, prompt, caches);
  }
  for (int i = 0; i < steps; ++i) {
    mx::array expected = model.forward_last(token_at(i), expected_caches);
    mx::array logits = step.forward_last(token_at(i), caches);
    mx::eval(expected, logits);
    ASSERT_TRUE(same_bits(logits, expected)) << "token " << i;
    ASSERT_EQ(caches[0]->offset(), prompt + i + 1);
  }
  // And both go on as equals, from caches that are equal.
  mx::array more = mx::zeros({1, 3}, mx::int32);
  EXPECT_TRUE(same_bits(
      model.forward_last(more, caches),
      model.forward_last(more, expected_caches)));
}

void expect_compiled(
    const models::FakeCheckpoint& checkpoint,
    int steps,
    int prompt = 5,
    const models::CacheOptions& options = {.per_layer = true}) {
  for (bool fallback : {true, false}) {
    SCOPED_TRACE(fallback ? "plain operations" : "our kernels");
    auto model = load(checkpoint, fallback);
    CompiledStep step(*model);
    expect_equal_steps(*model, step, steps, prompt, options);
    EXPECT_EQ(step.fallback(), "");
    EXPECT_EQ(step.trace_count(), 1);
    // The very first token goes into empty caches.
    EXPECT_EQ(step.compiled_steps(), steps - (prompt == 0 ? 1 : 0));
  }
}

// As mlxx sets it on the CPU: without fusing.
class CompiledStepTest : public testing::Test {
 protected:
  void SetUp() override {
    mx::set_compile_mode(mx::CompileMode::no_fuse);
  }
};

TEST_F(CompiledStepTest, OneTraceServes500TokensOfADenseModel) {
  expect_compiled(
      models::random_checkpoint(config(), std::nullopt, mx::float32),
      500);
}

TEST_F(CompiledStepTest, OneTraceServes500TokensOfAQuantizedModel) {
  expect_compiled(
      models::random_checkpoint(
          config(),
          hub::Quantization{32, 4, "affine"},
          mx::float32),
      500);
}

TEST_F(CompiledStepTest, HalfPrecisionBiasesAndAHeadOfItsOwn) {
  auto more = R"("attention_bias":true,"mlp_bias":true,
                  "tie_word_embeddings":false)";
  expect_compiled(
      models::random_checkpoint(config(more), std::nullopt, mx::bfloat16),
      60);
}

TEST_F(CompiledStepTest, EmptyCachesBeginWithThePlainStep) {
  expect_compiled(
      models::random_checkpoint(config(), std::nullopt, mx::float32),
      20,
      0);
}

TEST_F(CompiledStepTest, RotatingCaches) {
  auto checkpoint =
      models::random_checkpoint(config(), std::nullopt, mx::float32);
  // Before, at and long after the first token is dropped; and a prompt that
  // is longer than the caches.
  expect_compiled(checkpoint, 70, 5, {.max_kv_size = 24, .per_layer = true});
  expect_compiled(checkpoint, 40, 60, {.max_kv_size = 24, .per_layer = true});
}

TEST_F(CompiledStepTest, FullAndSlidingLayers) {
  auto more = R"("layer_types":["full_attention","sliding_attention",
                  "full_attention"],"sliding_window":24)";
  expect_compiled(
      models::random_checkpoint(config(more), std::nullopt, mx::float32),
      70);
}

TEST_F(CompiledStepTest, ScaledRope) {
  for (const char* scaling :
       {R"("rope_type":"linear","factor":2.0)",
        R"("rope_type":"llama3","factor":8.0,
           "original_max_position_embeddings":64)",
        R"("rope_type":"yarn","factor":4.0,
           "original_max_position_embeddings":64)"}) {
    SCOPED_TRACE(scaling);
    std::string more = std::string(R"("rope_scaling":{)") + scaling + "}";
    expect_compiled(
        models::random_checkpoint(config(more), std::nullopt, mx::float32),
        40);
  }
}

// Steps of `model`, which cannot be compiled, because of `reason`.
void expect_fallback(
    const Model& model,
    const std::string& reason,
    int traces) {
  CompiledStep step(model);
  expect_equal_steps(model, step, 30);
  EXPECT_NE(step.fallback().find(reason), std::string::npos) << step.fallback();
  EXPECT_EQ(step.trace_count(), traces);
  EXPECT_EQ(step.compiled_steps(), 0);
}

TEST_F(CompiledStepTest, FallsBackWhereAnglesDependOnTheLength) {
  auto checkpoint = models::random_checkpoint(
      config(R"("rope_scaling":{"rope_type":"dynamic","factor":2.0})"));
  expect_fallback(
      *load(checkpoint, true),
      "[rope] dynamic scaling needs the position as a number",
      1);
}

TEST_F(CompiledStepTest, FallsBackFromCachesOfAnotherKind) {
  FakeModel model(kVocab, hashed(kVocab));
  CompiledStep step(model);
  auto caches = model.make_cache({.per_layer = true});
  auto expected_caches = model.make_cache({.per_layer = true});
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(same_bits(
        step.forward_last(token_at(i), caches),
        model.forward_last(token_at(i), expected_caches)));
  }
  EXPECT_EQ(
      step.fallback(),
      "the model's caches are written by their own kernel or in blocks");
  EXPECT_EQ(step.trace_count(), 0);
}

TEST_F(CompiledStepTest, LeavesADecoderThatIsOneOperationAlone) {
  auto model = load(
      models::random_checkpoint(config(), hub::Quantization{32, 4, "affine"}),
      false);
  auto caches = model->make_cache({});
  auto expected_caches = model->make_cache({});
  if (caches.size() > 1) {
    GTEST_SKIP() << "no such kernel for this backend";
  }
  CompiledStep step(*model);
  for (int i = 0; i < 5; ++i) {
    mx::array logits = step.forward_last(token_at(i), caches);
    EXPECT_TRUE(
        same_bits(logits, model->forward_last(token_at(i), expected_caches)));
  }
  EXPECT_NE(step.fallback(), "");
  EXPECT_EQ(step.trace_count(), 0);
}

TEST_F(CompiledStepTest, FallsBackWithoutACompiler) {
  auto model = load(models::random_checkpoint(config()), true);
  mx::set_compile_mode(mx::CompileMode::disabled);
  expect_fallback(*model, "MLX does not compile here", 0);
}

// A llama whose step can be made to misbehave.
class OddModel : public FakeModel {
 public:
  explicit OddModel(std::shared_ptr<const Model> inner)
      : FakeModel(kVocab, {}), inner_(std::move(inner)) {}

  cache::CacheList make_cache(
      const models::CacheOptions& options) const override {
    return inner_->make_cache(options);
  }
  mx::array forward_last(const mx::array& tokens, cache::CacheList& caches)
      const override {
    mx::array logits = inner_->forward_last(tokens, caches);
    if (odd) {
      return odd(logits, caches);
    }
    return logits;
  }

  std::function<mx::array(const mx::array&, cache::CacheList&)> odd;

 private:
  std::shared_ptr<const Model> inner_;
};

TEST_F(CompiledStepTest, FallsBackFromWhatAGraphCannotHold) {
  OddModel model(load(models::random_checkpoint(config()), true));
  model.odd = [](const mx::array& logits, cache::CacheList& caches) {
    return mx::add(logits, mx::array(static_cast<float>(caches[0]->offset())));
  };
  expect_fallback(model, "the model needs the position as a number", 1);
  model.odd = [](const mx::array& logits, cache::CacheList&) {
    if (is_shapeless_tracing()) {
      mx::eval(logits);
    }
    return logits;
  };
  expect_fallback(model, "eval an array during function transformations", 1);
  model.odd = [](const mx::array& logits, cache::CacheList&) {
    mx::array half = mx::slice(logits, {0, 0}, {1, kVocab / 2});
    return mx::concatenate({half, half}, 1);
  };
  expect_fallback(model, "output shapes", 1);
}

TEST_F(CompiledStepTest, ASecondTraceMakesItFallBack) {
  auto model = load(models::random_checkpoint(config()), true);
  CompiledStep step(*model);
  auto run = [&](const mx::array& token) {
    auto caches = model->make_cache({.per_layer = true});
    feed(*model, 5, caches);
    auto expected_caches = model->make_cache({.per_layer = true});
    feed(*model, 5, expected_caches);
    EXPECT_TRUE(same_bits(
        step.forward_last(token, caches),
        model->forward_last(token, expected_caches)));
  };
  run(token_at(3));
  run(token_at(4));
  EXPECT_EQ(step.fallback(), "");
  run(mx::astype(token_at(3), mx::int64));
  EXPECT_EQ(step.trace_count(), 2);
  EXPECT_EQ(
      step.fallback(),
      "the step was traced again, so a shape or dtype has changed");
  run(token_at(5));
  EXPECT_EQ(step.trace_count(), 2);
}

// With a step in flight while the next one is being made.
TEST_F(CompiledStepTest, GivesATokenStreamTheSameTokens) {
  auto model = load(models::random_checkpoint(config()), false);
  CompiledStep step(*model);
  auto tokens_with = [&](CompiledStep* runs) {
    SamplingOptions sampling;
    sampling.temperature = 1;
    Sequence sequence;
    sequence.caches = model->make_cache({.per_layer = true});
    TokenStream stream(*model, {3}, sequence, {sampling, 11, 120, runs});
    std::vector<int32_t> tokens;
    while (auto token = stream.next()) {
      tokens.push_back(*token);
    }
    return tokens;
  };
  auto expected = tokens_with(nullptr);
  EXPECT_EQ(tokens_with(&step), expected);
  EXPECT_EQ(step.fallback(), "");
  EXPECT_EQ(step.compiled_steps(), 119);
  EXPECT_EQ(tokens_with(&step), expected);
  EXPECT_EQ(step.trace_count(), 1);
}

TEST_F(CompiledStepTest, FollowsWeightsThatAreSwapped) {
  // A model is immutable once loaded; whoever mounts an adapter is its owner.
  auto model = std::const_pointer_cast<Model>(
      load(models::random_checkpoint(config()), true));
  CompiledStep step(*model);
  expect_equal_steps(*model, step, 10);
  model->visit([](const std::string& name, Parameter& parameter) {
    if (name.ends_with("q_proj.weight")) {
      mx::array half = mx::multiply(parameter.value(), mx::array(0.5f));
      mx::eval(half);
      parameter.set({half, std::nullopt, std::nullopt});
    }
  });
  expect_equal_steps(*model, step, 10);
  EXPECT_EQ(step.fallback(), "");
  EXPECT_EQ(step.trace_count(), 2);
}

TEST_F(CompiledStepTest, ServesManyAnswersWithOneTrace) {
  auto model = load(models::random_checkpoint(config()), false);
  CompiledStep step(*model);
  for (int limit : {0, 24, 0}) {
    for (int prompt : {3, 40}) {
      expect_equal_steps(
          *model,
          step,
          30,
          prompt,
          {.max_kv_size = limit, .per_layer = true});
    }
  }
  EXPECT_EQ(step.fallback(), "");
  EXPECT_EQ(step.trace_count(), 1);
}

TEST_F(CompiledStepTest, WritesInPlaceAndGivesItsMemoryBack) {
  auto model = load(models::random_checkpoint(config()), true);
  size_t before = memory_use().active;
  {
    CompiledStep step(*model);
    auto caches = model->make_cache({.per_layer = true});
    feed(*model, 5, caches);
    size_t held = memory_use().active;
    for (int i = 0; i < 200; ++i) {
      mx::eval(step.forward_last(token_at(i), caches));
    }
    EXPECT_LT(memory_use().active, held + 16384);
    reset_peak_memory();
    mx::eval(step.forward_last(token_at(0), caches));
    // One layer's keys would be 32 KiB, if they were copied.
    EXPECT_LT(memory_use().peak, held + 32768);
    EXPECT_EQ(step.trace_count(), 1);
  }
  EXPECT_LE(memory_use().active, before + 64);
}

}  // namespace
}  // namespace mlxx::generate
