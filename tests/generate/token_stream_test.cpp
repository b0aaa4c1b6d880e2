#include "mlxx/generate/token_stream.h"

#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/core/memory.h"
#include "mlxx/generate/prefill.h"
#include "tests/generate/fake_model.h"

namespace mlxx::generate {
namespace {

constexpr int V = 32;

using Tokens = std::vector<int32_t>;

Tokens read_all(TokenStream& stream) {
  Tokens tokens;
  while (auto token = stream.next()) {
    tokens.push_back(*token);
  }
  return tokens;
}

// Prefill and decode, as generate() does it.
Tokens answer(
    const FakeModel& model,
    const Tokens& prompt,
    Sequence& sequence,
    int max_tokens,
    SamplingOptions sampling = {},
    int step_size = 2048) {
  reuse_prefix(sequence, prompt, model, {});
  EXPECT_TRUE(prefill(model, prompt, sequence, {.step_size = step_size}));
  TokenStream stream(model, prompt, sequence, {sampling, 11, max_tokens});
  return read_all(stream);
}

Tokens cold(
    const FakeModel& model,
    const Tokens& prompt,
    int max_tokens,
    SamplingOptions sampling = {}) {
  Sequence sequence;
  return answer(model, prompt, sequence, max_tokens, sampling);
}

// What the caches of all layers really hold.
Tokens held(const Sequence& sequence) {
  Tokens first;
  for (size_t layer = 0; layer < sequence.caches.size(); ++layer) {
    const auto& cache = static_cast<FakeCache&>(*sequence.caches[layer]);
    auto tokens = mx::contiguous(cache.tokens());
    mx::eval(tokens);
    Tokens here(tokens.data<int32_t>(), tokens.data<int32_t>() + tokens.size());
    if (layer == 0) {
      first = here;
    } else {
      EXPECT_EQ(here, first);
    }
  }
  return first;
}

TEST(Prefill, TakesAllButTheLastTokenInChunks) {
  FakeModel model(V, hashed(V));
  Tokens prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  for (auto [step, lengths] : std::vector<std::pair<int, std::vector<int>>>{
           {1, {1, 1, 1, 1, 1, 1, 1}},
           {3, {3, 3, 1}},
           {7, {7}},
           {8, {7}},
           {2048, {7}}}) {
    model.lengths.clear();
    Sequence sequence;
    sequence.caches = model.make_cache({});
    std::vector<int> progress;
    ASSERT_TRUE(prefill(
        model,
        prompt,
        sequence,
        {step,
         [&](int done, int total) {
           EXPECT_EQ(total, 8);
           progress.push_back(done);
         },
         {}}));
    EXPECT_EQ(model.lengths, lengths);
    for (const auto& cache : sequence.caches) {
      EXPECT_TRUE(cache->state()[0].is_available());
    }
    EXPECT_EQ(sequence.tokens, Tokens(prompt.begin(), prompt.end() - 1));
    EXPECT_EQ(held(sequence), sequence.tokens);
    EXPECT_EQ(progress.front(), 0);
    EXPECT_EQ(progress.back(), 7);
    EXPECT_EQ(progress.size(), lengths.size() + 1);
  }
}

TEST(Prefill, ChunksShrinkAsTheContextGrows) {
  EXPECT_EQ(chunk_length(2048, 0, 100000), 2048);
  EXPECT_EQ(chunk_length(2048, 0, 2049), 2048);
  EXPECT_EQ(chunk_length(2048, 0, 2048), 2047);
  EXPECT_EQ(chunk_length(2048, 30720, 100000), 2048);
  EXPECT_EQ(chunk_length(2048, 63488, 100000), 1024);
  EXPECT_EQ(chunk_length(100, 63488, 100000), 100);
  EXPECT_EQ(chunk_length(2048, 99990, 100000), 9);
  // Never too small to get on, and no overflow.
  EXPECT_EQ(chunk_length(INT32_MAX, 0, INT32_MAX), 64);
  EXPECT_EQ(chunk_length(2048, 2000000000, INT32_MAX), 64);
}

TEST(Prefill, OfOneTokenComputesNothing) {
  FakeModel model(V, hashed(V));
  Sequence sequence;
  sequence.caches = model.make_cache({});
  EXPECT_TRUE(prefill(model, {9}, sequence, {}));
  EXPECT_TRUE(model.lengths.empty());
}

TEST(Prefill, IsCancelledBetweenChunks) {
  FakeModel model(V, hashed(V));
  Sequence sequence;
  sequence.caches = model.make_cache({});
  PrefillOptions options;
  options.step_size = 2;
  options.is_cancelled = [&] { return model.lengths.size() == 2; };
  EXPECT_FALSE(prefill(model, {1, 2, 3, 4, 5, 6, 7}, sequence, options));
  EXPECT_EQ(sequence.tokens, (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(held(sequence), sequence.tokens);
}

TEST(Prefill, NeverComputesLogits) {
  // Logits of 512 MiB that nobody may evaluate.
  FakeModel model(V, [](const mx::array&) {
    return mx::ones({1, 1 << 27}, mx::float32) * mx::array(2.0f);
  });
  Tokens prompt(100, 3);
  Sequence sequence;
  sequence.caches = model.make_cache({});
  reset_peak_memory();
  size_t before = memory_use().active;
  prefill(model, prompt, sequence, {.step_size = 10});
  EXPECT_LT(memory_use().peak, before + (size_t{64} << 20));
}

TEST(TokenStream, GivesExactlyMaxTokens) {
  FakeModel model(V, hashed(V));
  auto five = cold(model, {1, 2, 3}, 5);
  ASSERT_EQ(five.size(), 5u);
  for (int n : {0, 1, 2, 3}) {
    EXPECT_EQ(cold(model, {1, 2, 3}, n), Tokens(five.begin(), five.begin() + n))
        << n;
  }
}

TEST(TokenStream, ComputesNoStepThatNobodyReads) {
  FakeModel model(V, hashed(V));
  for (int n : {0, 1, 2, 7}) {
    model.lengths.clear();
    cold(model, {5}, n);
    EXPECT_EQ(model.lengths.size(), static_cast<size_t>(n));
  }
}

TEST(TokenStream, EnqueuesTheNextStepBeforeItReadsAToken) {
  FakeModel model(V, hashed(V));
  Sequence sequence;
  sequence.caches = model.make_cache({});
  TokenStream stream(model, {4}, sequence, {{}, 0, 3});
  EXPECT_EQ(model.lengths.size(), 0u);
  stream.next();
  EXPECT_EQ(model.lengths.size(), 2u);
  stream.next();
  EXPECT_EQ(model.lengths.size(), 3u);
  stream.next();
  EXPECT_EQ(model.lengths.size(), 3u);
}

TEST(TokenStream, DoesNotWaitForAStepToEnqueueTheNext) {
  // Each step takes milliseconds, so that the token before is hardly ever
  // there when the next step is built.
  class Slow : public FakeModel {
   public:
    Slow()
        : FakeModel(V, [this](const mx::array& tokens) {
            auto work = mx::ones({128, 128}) * mx::sum(tokens);
            for (int i = 0; i < 10; ++i) {
              work = mx::matmul(work, work) * mx::array(0.0f);
            }
            return mx::sum(work) + one_hot(mx::array(3), V);
          }) {}
    mx::array forward_last(const mx::array& tokens, cache::CacheList& caches)
        const override {
      if (tokens.has_primitive()) {
        waited += tokens.inputs()[0].is_available() ? 1 : 0;
      }
      return FakeModel::forward_last(tokens, caches);
    }
    mutable int waited = 0;
  };
  Slow model;
  cold(model, {1}, 8);
  EXPECT_EQ(model.lengths.size(), 8u);
  EXPECT_LT(model.waited, 7);
}

TEST(TokenStream, RecordsWhatTheCachesHold) {
  FakeModel model(V, hashed(V));
  Sequence sequence;
  auto tokens = answer(model, {1, 2, 3}, sequence, 4);
  Tokens expected = {1, 2, 3};
  // The last one was never fed.
  expected.insert(expected.end(), tokens.begin(), tokens.end() - 1);
  EXPECT_EQ(sequence.tokens, expected);
  EXPECT_EQ(held(sequence), expected);

  // Left early: the step in flight has been fed with the last token read.
  Sequence early;
  early.caches = model.make_cache({});
  Tokens read;
  {
    TokenStream stream(model, {6}, early, {{}, 0, 100});
    read.push_back(*stream.next());
    read.push_back(*stream.next());
  }
  EXPECT_EQ(early.tokens, (Tokens{6, read[0], read[1]}));
  EXPECT_EQ(held(early), early.tokens);
}

TEST(TokenStream, ChunkSizeDoesNotChangeTheAnswer) {
  FakeModel model(V, hashed(V));
  Tokens prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  auto whole = cold(model, prompt, 20);
  for (int step : {1, 2, 5}) {
    Sequence sequence;
    EXPECT_EQ(answer(model, prompt, sequence, 20, {}, step), whole);
  }
}

TEST(TokenStream, SeedDecidesTheDraws) {
  FakeModel model(V, [](const mx::array&) { return mx::zeros({1, V}); });
  SamplingOptions sampling;
  sampling.temperature = 1;
  auto run = [&](int64_t seed) {
    Sequence sequence;
    sequence.caches = model.make_cache({});
    TokenStream stream(model, {1}, sequence, {sampling, seed, 16});
    return read_all(stream);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_EQ(run(0), run(0));
  EXPECT_NE(run(0), run(1));
  EXPECT_NE(run(1), run(2));
  EXPECT_NE(run(-1), run(INT64_MAX));
}

TEST(TokenStream, DrawsDoNotDependOnOtherSequences) {
  FakeModel model(V, [](const mx::array&) { return mx::zeros({1, V}); });
  SamplingOptions sampling;
  sampling.temperature = 1;
  auto alone = cold(model, {1}, 12, sampling);
  Sequence mine;
  Sequence other;
  mine.caches = model.make_cache({});
  other.caches = model.make_cache({});
  TokenStream stream(model, {1}, mine, {sampling, 11, 12});
  TokenStream rival(model, {2}, other, {sampling, 99, 100});
  Tokens together;
  while (auto token = stream.next()) {
    together.push_back(*token);
    rival.next();
    rival.next();
  }
  EXPECT_EQ(together, alone);
}

TEST(TokenStream, PenaltiesSeePromptAndAnswer) {
  // Prefers 1, then 2, then 3 ... by half a point each.
  FakeModel model(V, [](const mx::array&) {
    return mx::reshape(mx::arange(V, mx::float32), {1, V}) * mx::array(-0.5f) +
        mx::array(20.0f);
  });
  EXPECT_EQ(cold(model, {9}, 4), (Tokens{0, 0, 0, 0}));
  SamplingOptions sampling;
  sampling.frequency_penalty = 2;
  sampling.penalty_context_size = 0;
  // Token 0 costs 2 a time: 0, then 1..3 until they cost as much as well.
  EXPECT_EQ(cold(model, {9}, 5, sampling), (Tokens{0, 1, 2, 3, 0}));
  // Said in the prompt already.
  EXPECT_EQ(cold(model, {0, 0}, 2, sampling), (Tokens{1, 2}));
  // The last token is part of the window though it is not read yet.
  sampling.penalty_context_size = 1;
  EXPECT_EQ(cold(model, {0}, 4, sampling), (Tokens{1, 0, 1, 0}));
}

TEST(TokenStream, PenaltiesAreTheSameWithAWarmCache) {
  FakeModel model(V, [](const mx::array&) {
    return mx::reshape(mx::arange(V, mx::float32), {1, V}) * mx::array(-0.5f) +
        mx::array(20.0f);
  });
  SamplingOptions sampling;
  sampling.repetition_penalty = 1.3f;
  sampling.presence_penalty = 0.5f;
  sampling.frequency_penalty = 1;
  Tokens prompt = {0, 1, 2, 0, 1, 0, 5};
  auto expected = cold(model, prompt, 30, sampling);
  Sequence warm;
  answer(model, {0, 1, 2, 0}, warm, 3);
  model.lengths.clear();
  EXPECT_EQ(answer(model, prompt, warm, 30, sampling), expected);
  EXPECT_LT(model.lengths.size(), 1 + 1 + 30u);
}

TEST(TokenStream, LogitsThatAreNotFiniteAreAnError) {
  for (float temperature : {0.0f, 0.8f}) {
    FakeModel model(V, [](const mx::array& tokens) {
      return tokens.shape(0) < 4 ? mx::zeros({1, V}) : mx::full({1, V}, NAN);
    });
    SamplingOptions sampling;
    sampling.temperature = temperature;
    Sequence sequence;
    sequence.caches = model.make_cache({});
    TokenStream stream(model, {1}, sequence, {sampling, 0, 10});
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(stream.next());
    }
    try {
      stream.next();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_NE(std::string(error.what()).find("token 3"), std::string::npos);
    }
  }
}

TEST(TokenStream, ErrorsOfMlxBecomeErrors) {
  FakeModel model(V, [](const mx::array&) -> mx::array {
    throw std::runtime_error("[malloc] Unable to allocate 99 bytes.");
  });
  Sequence sequence;
  sequence.caches = model.make_cache({});
  TokenStream stream(model, {1}, sequence, {{}, 0, 10});
  try {
    stream.next();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
  }
}

TEST(TokenStream, LongAnswersKeepMemoryFlat) {
  // State of fixed size that each step changes, so that a graph that is never
  // cut would grow with every token.
  class Counting : public FakeModel {
   public:
    Counting() : FakeModel(V, hashed(V)) {}
    mx::array forward_last(const mx::array& tokens, cache::CacheList&)
        const override {
      state_ = state_ + mx::sum(tokens);
      return one_hot(mx::remainder(state_, mx::array(V)), V);
    }
    mutable mx::array state_ = mx::array(1);
  };
  Counting model;
  Sequence sequence;
  sequence.caches = model.make_cache({});
  SamplingOptions sampling;
  sampling.temperature = 0.5f;
  sampling.frequency_penalty = 0.1f;
  constexpr int kSteps = 10000;
  TokenStream stream(model, {1}, sequence, {sampling, 0, kSteps});
  auto advance = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      stream.next();
    }
  };
  advance(1000);
  size_t memory = memory_use().active;
  advance(kSteps - 1000);
  // A graph that is never cut holds every step's arrays, and re-doing it is
  // what would make later steps slower.
  EXPECT_LT(memory_use().active, memory + 4096);
}

TEST(ReusePrefix, KeepsTheCommonPrefixButNeverTheLastToken) {
  FakeModel model(V, hashed(V));
  struct Case {
    Tokens prompt;
    int kept;
  };
  for (const Case& c : std::vector<Case>{
           {{1, 2, 3, 4, 5}, 4},  // the same again
           {{1, 2, 3, 4, 5, 6, 7}, 5},
           {{1, 2, 3}, 2},
           {{1, 2, 9, 4, 5}, 2},
           {{9}, 0},
           {{1}, 0}}) {
    Sequence sequence;
    sequence.caches = model.make_cache({});
    prefill(model, {1, 2, 3, 4, 5, 0}, sequence, {});
    EXPECT_EQ(reuse_prefix(sequence, c.prompt, model, {}), c.kept);
    EXPECT_EQ(
        sequence.tokens,
        Tokens(c.prompt.begin(), c.prompt.begin() + c.kept));
    EXPECT_EQ(held(sequence), sequence.tokens);
  }
}

TEST(ReusePrefix, AsManyTurnsAsOneLikesEqualColdRuns) {
  FakeModel model(V, hashed(V));
  Sequence sequence;
  Tokens conversation;
  for (int turn = 0; turn < 6; ++turn) {
    for (int i = 0; i < turn + 1; ++i) {
      conversation.push_back((turn * 7 + i) % V);
    }
    auto warm = answer(model, conversation, sequence, 5 + turn);
    EXPECT_EQ(warm, cold(model, conversation, 5 + turn)) << turn;
    conversation.insert(conversation.end(), warm.begin(), warm.end());
  }
  // The identical prompt, twice, and one token, twice.
  for (const Tokens& prompt : {conversation, Tokens{4}}) {
    auto expected = cold(model, prompt, 5);
    EXPECT_EQ(answer(model, prompt, sequence, 5), expected);
    EXPECT_EQ(answer(model, prompt, sequence, 5), expected);
  }
}

TEST(ReusePrefix, StartsAfreshWhereCachesCannotBeCutBack) {
  FakeModel model(V, hashed(V));
  model.trimmable = false;
  Sequence sequence;
  auto first = answer(model, {1, 2, 3}, sequence, 4);
  Tokens grown = {1, 2, 3};
  grown.insert(grown.end(), first.begin(), first.end());
  grown.push_back(9);
  // An extension needs no cut.
  EXPECT_EQ(reuse_prefix(sequence, grown, model, {}), 6);
  EXPECT_EQ(reuse_prefix(sequence, {1, 2, 3}, model, {}), 0);
  EXPECT_TRUE(sequence.tokens.empty());
  EXPECT_EQ(held(sequence), Tokens{});
}

TEST(ReusePrefix, AnotherWindowNeedsOtherCaches) {
  FakeModel model(V, hashed(V));
  Sequence sequence;
  answer(model, {1, 2, 3}, sequence, 4);
  EXPECT_EQ(reuse_prefix(sequence, {1, 2, 3, 4}, model, {.max_kv_size = 8}), 0);
  EXPECT_EQ(model.made_caches.back(), 8);
  EXPECT_EQ(sequence.made_for.max_kv_size, 8);
}

}  // namespace
}  // namespace mlxx::generate
