#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "mlxx/core/mlx.h"
#include "mlxx/models/model.h"

namespace mlxx::generate {

// Holds the tokens themselves, [S] int32, in place of keys and values: a
// wrong trim, a lost token or a wrong order then changes the answer.
class FakeCache : public cache::KVCache {
 public:
  explicit FakeCache(bool trimmable) : trimmable_(trimmable) {}

  cache::KVView append(const mx::array&, const mx::array&) override {
    throw std::logic_error("the fake model appends tokens");
  }
  void append(const mx::array& tokens) {
    auto flat = mx::flatten(tokens);
    offset_ += flat.shape(0);
    tokens_ = mx::concatenate({tokens_, flat}, 0);
  }
  const mx::array& tokens() const {
    return tokens_;
  }
  int offset() const override {
    return offset_;
  }
  int trim(int n) override {
    n = std::min(n, offset_);
    offset_ -= n;
    tokens_ = mx::slice(tokens_, {0}, {offset_});
    return n;
  }
  bool is_trimmable() const override {
    return trimmable_;
  }
  size_t nbytes() const override {
    return tokens_.nbytes();
  }
  std::vector<mx::array> state() const override {
    return {tokens_};
  }
  Mask make_mask(int) const override {
    return {};
  }

 private:
  bool trimmable_;
  int offset_ = 0;
  mx::array tokens_ = mx::zeros({0}, mx::int32);
};

// A model whose logits are a function of all tokens so far.
class FakeModel : public models::Model {
 public:
  // tokens [S] int32, lazy -> logits [1, V].
  using Rule = std::function<mx::array(const mx::array& tokens)>;

  FakeModel(int vocab_size, Rule rule)
      : vocab_size_(vocab_size), rule_(std::move(rule)) {}

  models::ModelSummary summary() const override {
    models::ModelSummary summary;
    summary.model_type = "fake";
    summary.layers = 2;
    summary.vocab_size = vocab_size_;
    return summary;
  }
  cache::CacheList make_cache(
      const models::CacheOptions& options) const override {
    made_caches.push_back(options.max_kv_size);
    cache::CacheList caches;
    caches.push_back(std::make_unique<FakeCache>(trimmable));
    caches.push_back(std::make_unique<FakeCache>(trimmable));
    return caches;
  }
  mx::array forward(const mx::array&, cache::CacheList&) const override {
    ADD_FAILURE() << "the logits of all positions were asked for";
    return mx::zeros({1, 1, vocab_size_});
  }
  mx::array forward_last(const mx::array& tokens, cache::CacheList& caches)
      const override {
    EXPECT_EQ(tokens.shape(0), 1);
    lengths.push_back(tokens.shape(1));
    for (auto& cache : caches) {
      static_cast<FakeCache&>(*cache).append(tokens);
    }
    return rule_(static_cast<FakeCache&>(*caches[0]).tokens());
  }

  bool trimmable = true;
  mutable std::vector<int> lengths;      // L of each forward_last
  mutable std::vector<int> made_caches;  // max_kv_size of each make_cache

 private:
  int vocab_size_;
  Rule rule_;
};

// [1, V] with 10 at `token` ([], int32, lazy) and 0 elsewhere.
inline mx::array one_hot(const mx::array& token, int vocab_size) {
  auto ids = mx::reshape(mx::arange(vocab_size), {1, vocab_size});
  return mx::where(ids == token, mx::array(10.0f), mx::array(0.0f));
}

// Always answers script[n - first] after n tokens; past its end, the last.
inline FakeModel::Rule scripted(std::vector<int> script, int first, int V) {
  return [script, first, V](const mx::array& tokens) {
    int n = std::clamp(
        tokens.shape(0) - first,
        0,
        static_cast<int>(script.size()) - 1);
    return one_hot(mx::array(script[static_cast<size_t>(n)]), V);
  };
}

// The next token depends on every earlier one and on its place.
inline FakeModel::Rule hashed(int V) {
  return [V](const mx::array& tokens) {
    auto places = mx::arange(1, tokens.shape(0) + 1, mx::int32);
    auto sum = mx::sum(tokens * places + tokens * tokens);
    return one_hot(mx::remainder(sum, mx::array(V)), V);
  };
}

}  // namespace mlxx::generate
