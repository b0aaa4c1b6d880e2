// What goes on from a kept state gives the same bits as what is computed from
// the start.
#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/cache/shared_copies.h"
#include "mlxx/engine/prefix_cache.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

namespace mlxx::engine {
namespace {

using Tokens = std::vector<int32_t>;

struct Row {
  Tokens tokens;  // in the caches, but for the last one
  cache::CacheList caches;
  int cached = 0;
  std::vector<mx::array> logits;  // [1, V] of each step
  std::vector<int> stops;         // where pieces of its tokens ended
};

class Served {
 public:
  Served(
      const std::string& type,
      models::CacheOptions options,
      std::optional<hub::Quantization> quantization)
      : options_(std::move(options)) {
    Json config = parse_json(models::find_model(type).tiny_config, "tiny");
    model_ =
        models::load_model(models::random_checkpoint(config, quantization));
  }

  int vocab() const {
    return model_->summary().vocab_size;
  }
  cache::CacheList make_cache() const {
    return model_->make_cache(options_);
  }

  Tokens random_tokens(std::mt19937& random, int n) const {
    Tokens tokens;
    for (int i = 0; i < n; ++i) {
      tokens.push_back(
          static_cast<int32_t>(random() % static_cast<unsigned>(vocab())));
    }
    return tokens;
  }

  // The prompt but for its last token; from `prefixes` and into them, if given.
  Row prefill(const Tokens& prompt, PrefixCache* prefixes) {
    Row row{prompt, {}, 0, {}, {}};
    if (prefixes) {
      if (auto hit = prefixes->find("m", prompt)) {
        row.caches = std::move(hit->caches);
        row.cached = hit->tokens;
        row.stops = stops_.at(first(prompt, hit->tokens));
      }
    }
    if (row.caches.empty()) {
      row.caches = make_cache();
    }
    bool trimmable = cache::is_always_trimmable(row.caches);
    int total = static_cast<int>(prompt.size()) - 1;
    int done = row.cached;
    while (done < total) {
      int n = prefixes
          ? prefixes->tokens_to_checkpoint("m", prompt, done, total, trimmable)
          : total - done;
      feed(row, done, done + n);
      done += n;
      row.stops.push_back(done);
      if (prefixes) {
        keep(row, done, *prefixes);
      }
    }
    return row;
  }

  // Feeds the newest token and chooses the likeliest one.
  void step(Row& row) const {
    int size = static_cast<int>(row.tokens.size());
    mx::array logits = feed(row, size - 1, size);
    row.stops.push_back(size);
    row.logits.push_back(logits);
    row.tokens.push_back(
        static_cast<int32_t>(mx::argmax(logits).item<uint32_t>()));
  }

  void close(Row& row, PrefixCache& prefixes) {
    keep(row, static_cast<int>(row.tokens.size()) - 1, prefixes);
    row.caches.clear();
  }

  // The same prompt from the start, in pieces that end where the row's did.
  Row in_the_same_pieces(const Tokens& prompt, const Row& like) const {
    Row row{prompt, make_cache(), 0, {}, {}};
    int done = 0;
    for (int stop : like.stops) {
      if (stop >= std::ssize(prompt)) {
        step(row);
      } else {
        feed(row, done, stop);
      }
      done = stop;
    }
    return row;
  }

  Row cold(const Tokens& prompt, int steps) {
    Row row = prefill(prompt, nullptr);
    for (int i = 0; i < steps; ++i) {
      step(row);
    }
    return row;
  }

 private:
  static Tokens first(const Tokens& tokens, int n) {
    return {tokens.begin(), tokens.begin() + n};
  }

  void keep(const Row& row, int tokens, PrefixCache& prefixes) {
    Tokens start = first(row.tokens, tokens);
    prefixes.insert("m", start, row.caches);
    for (int cut = tokens; cut > 0; --cut) {
      std::vector<int> stops;
      std::ranges::copy_if(row.stops, std::back_inserter(stops), [&](int stop) {
        return stop <= cut;
      });
      stops_.emplace(first(start, cut), stops);
    }
  }

  mx::array feed(Row& row, int from, int to) const {
    mx::array tokens(row.tokens.data() + from, {1, to - from}, mx::int32);
    mx::array logits = model_->forward_last(tokens, row.caches);
    mx::eval(logits);
    return logits;
  }

  std::shared_ptr<const models::Model> model_;
  models::CacheOptions options_;
  // Of each state that may be found, where its pieces ended.
  std::map<Tokens, std::vector<int>> stops_;
};

void expect_same(const Row& row, const Row& expected) {
  EXPECT_EQ(row.tokens, expected.tokens);
  ASSERT_EQ(row.logits.size(), expected.logits.size());
  for (size_t i = 0; i < row.logits.size(); ++i) {
    ASSERT_TRUE(same_bits(row.logits[i], expected.logits[i])) << "step " << i;
  }
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::optional<hub::Quantization> kFourBits =
    hub::Quantization{32, 4, "affine"};

// Whole decoders in one kernel, hybrids, a scan alone, windows.
const char* const kTypes[] = {
    "llama",
    "gemma3_text",
    "llama4_text",
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
       {"gemma3_text", "llama4_text", "falcon_h1", "llama"}) {
    SCOPED_TRACE(type);
    Served served(type, {.per_layer = true}, std::nullopt);
    std::mt19937 random(4);
    PrefixCache prefixes({});
    Tokens system = served.random_tokens(random, 150);
    Tokens prompt = joined(system, served.random_tokens(random, 60));
    EXPECT_EQ(
        cache::is_always_trimmable(served.make_cache()),
        type == std::string("llama"));
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
      prefixes.tick();
      ASSERT_LE(prefixes.stats().bytes, 6 * one);
    }
    EXPECT_GT(cached, 16);
    EXPECT_GT(prefixes.stats().evictions, 16u);
  }
}

}  // namespace
}  // namespace mlxx::engine
