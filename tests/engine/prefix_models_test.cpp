// What goes on from a kept state gives the same bits as what is computed from
// the start.
#include <random>

#include <gtest/gtest.h>

#include "tests/engine/served_model.h"

namespace mlxx::engine {
namespace {

// Whole decoders in one kernel, hybrids, a scan alone, windows.
const char* const kTypes[] = {
    "llama",
    "gemma3_text",
    "llama4",
    "deepseek_v3",
    "gpt_oss",
    "falcon_h1",
    "qwen3_next",
    "mamba2",
    "lfm2",
    "qwen3_moe"};

TEST(PrefixModels, GoOnWithTheSameBits) {
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    Served served(type, {}, kFourBits);
    std::mt19937 random(1);
    PrefixCache prefixes({});
    Tokens system = served.random_tokens(random, 150);
    Tokens prompt = joined(system, served.random_tokens(random, 60));
    bool trimmable = cache::is_always_trimmable(served.make_cache());

    // The same prompt twice, and what follows its answer.
    Row first = served.prefill(prompt, &prefixes);
    EXPECT_EQ(first.cached, 0);
    Row second = served.prefill(prompt, &prefixes);
    EXPECT_EQ(second.cached, 209);
    Row expected = served.cold(prompt, 20);
    for (int i = 0; i < 20; ++i) {
      served.step(first);
      served.step(second);
    }
    expect_same(first, expected);
    expect_same(second, expected);
    served.close(first, prefixes);
    Tokens turn = joined(first.tokens, served.random_tokens(random, 30));
    Row third = served.prefill(turn, &prefixes);
    EXPECT_EQ(third.cached, 229);
    for (int i = 0; i < 5; ++i) {
      served.step(third);
    }
    expect_same(third, served.cold(turn, 5));

    // Another question after the same system prompt; a state is kept where
    // they part, when that is known.
    for (int round = 0; round < 3; ++round) {
      Tokens other = joined(system, served.random_tokens(random, 40));
      Row row = served.prefill(other, &prefixes);
      if (trimmable || round > 0) {
        EXPECT_GE(row.cached, 150);
        EXPECT_LE(row.cached, 152);
      }
      for (int i = 0; i < 5; ++i) {
        served.step(row);
      }
      expect_same(row, served.cold(other, 5));
    }
    // The rows that went on changed nothing of what is kept.
    Row again = served.prefill(prompt, &prefixes);
    EXPECT_EQ(again.cached, 209);
    for (int i = 0; i < 20; ++i) {
      served.step(again);
    }
    expect_same(again, expected);
    // Prompts of one token, twice.
    for (int round = 0; round < 2; ++round) {
      Row one = served.prefill({5}, &prefixes);
      EXPECT_EQ(one.cached, 0);
      served.step(one);
      expect_same(one, served.cold({5}, 1));
    }
  }
}

// Plain operations give other bits for other pieces of a prompt: a state that
// is kept is the one of the pieces that made it.
TEST(PrefixModels, LayersOneByOneGoOnFromTheStatesThatWereKept) {
  for (const char* type :
       {"gemma3_text", "llama4", "falcon_h1", "llama", "qwen2"}) {
    SCOPED_TRACE(type);
    Served served(type, {.per_layer = true}, std::nullopt);
    std::mt19937 random(4);
    PrefixCache prefixes({});
    Tokens system = served.random_tokens(random, 150);
    Tokens prompt = joined(system, served.random_tokens(random, 60));
    EXPECT_EQ(
        cache::is_always_trimmable(served.make_cache()),
        type == std::string("qwen2"));
    int cached = 0;
    for (int round = 0; round < 6; ++round) {
      Row row = served.prefill(prompt, &prefixes);
      cached += row.cached > 0;
      for (int i = 0; i < 12; ++i) {
        served.step(row);
      }
      expect_same(row, served.in_the_same_pieces(prompt, row));
      served.close(row, prefixes);
      // The same again, going on, and other questions.
      if (round == 1) {
        prompt = joined(row.tokens, served.random_tokens(random, 30));
      } else if (round > 1) {
        prompt = joined(system, served.random_tokens(random, 40));
      }
    }
    EXPECT_GE(cached, 4);
  }
}

TEST(PrefixModels, PromptsWithACommonStartShareItsMemory) {
  Served served("llama", {}, kFourBits);
  std::mt19937 random(2);
  PrefixCache prefixes({});
  Tokens system = served.random_tokens(random, 640);
  size_t one = 0;
  for (int i = 0; i < 8; ++i) {
    Tokens prompt = joined(system, served.random_tokens(random, 20));
    // Every second one is computed from the start, as by rows that were
    // prefilled at the same time.
    Row row = served.prefill(prompt, i % 2 ? nullptr : &prefixes);
    served.close(row, prefixes);
    if (i == 0) {
      one = prefixes.stats().bytes;
    }
  }
  EXPECT_EQ(prefixes.stats().entries, 8u);
  // Ten blocks together, and one of each.
  EXPECT_EQ(prefixes.stats().bytes, one / 11 * (10 + 8));
}

// Interleaved conversations, each with a marker in its prompts that must not
// show in another one, and room for a few of them.
TEST(PrefixModels, NothingLeaksBetweenConversations) {
  for (const char* type : {"llama", "gemma3_text", "falcon_h1", "qwen3_next"}) {
    SCOPED_TRACE(type);
    Served served(type, {}, kFourBits);
    std::mt19937 random(3);
    Tokens system = served.random_tokens(random, 100);
    size_t one = 0;
    {
      PrefixCache all({});
      Row row = served.prefill(system, &all);
      served.close(row, all);
      one = all.stats().bytes;
    }
    PrefixCache prefixes({.max_bytes = 6 * one});
    struct Talk {
      Tokens prompt;
      std::optional<Row> row;
      int turns = 0;
    };
    std::vector<Talk> talks(16);
    for (auto& talk : talks) {
      talk.prompt = joined(system, served.random_tokens(random, 30));
    }
    int cached = 0;
    for (int left = 16 * 3; left > 0;) {
      Talk& talk = talks[random() % talks.size()];
      if (talk.turns == 3) {
        continue;
      }
      if (!talk.row) {
        talk.row = served.prefill(talk.prompt, &prefixes);
        cached += talk.row->cached > 0;
        continue;
      }
      served.step(*talk.row);
      if (talk.row->logits.size() == 6) {
        served.close(*talk.row, prefixes);
        expect_same(*talk.row, served.cold(talk.prompt, 6));
        talk.prompt =
            joined(talk.row->tokens, served.random_tokens(random, 20));
        talk.row.reset();
        ++talk.turns;
        --left;
      }
      prefixes.shrink(0);
      ASSERT_LE(prefixes.stats().bytes, 6 * one);
    }
    EXPECT_GT(cached, 16);
    EXPECT_GT(prefixes.stats().evictions, 16u);
  }
}

}  // namespace
}  // namespace mlxx::engine
