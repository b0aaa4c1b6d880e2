#pragma once

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/cache/shared_copies.h"
#include "mlxx/engine/prefix_cache.h"
#include "tests/kernels/relative_error.h"
#include "tests/models/fake_checkpoint.h"

// A tiny model that answers prompts with a prefix cache.
namespace mlxx::engine {

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

inline void expect_same(const Row& row, const Row& expected) {
  EXPECT_EQ(row.tokens, expected.tokens);
  ASSERT_EQ(row.logits.size(), expected.logits.size());
  for (size_t i = 0; i < row.logits.size(); ++i) {
    ASSERT_TRUE(same_bits(row.logits[i], expected.logits[i])) << "step " << i;
  }
}

inline Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline const std::optional<hub::Quantization> kFourBits =
    hub::Quantization{32, 4, "affine"};

}  // namespace mlxx::engine
