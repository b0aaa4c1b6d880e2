#include "mlxx/engine/prefix_trie.h"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace mlxx::engine {
namespace {

using Tokens = std::vector<int32_t>;

int common(const Tokens& a, const Tokens& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) {
    ++n;
  }
  return static_cast<int>(n);
}

std::unique_ptr<PrefixEntry> entry_of(const Tokens& tokens, int shortest) {
  auto entry = std::make_unique<PrefixEntry>();
  entry->tokens = tokens;
  entry->shortest = shortest;
  return entry;
}

// Prompts that share starts of any length with others.
class Prompts {
 public:
  Tokens next() {
    Tokens tokens;
    if (!made_.empty() && below(5) > 0) {
      const Tokens& other = made_[below(made_.size())];
      tokens.assign(other.begin(), other.begin() + below(other.size() + 1));
    }
    size_t more = below(3) == 0 ? below(6) : below(200);
    for (size_t i = 0; i < more; ++i) {
      tokens.push_back(static_cast<int32_t>(below(3)));
    }
    made_.push_back(tokens);
    return tokens;
  }
  size_t below(size_t bound) {
    return random_() % bound;
  }

 private:
  std::mt19937 random_{11};
  std::vector<Tokens> made_;
};

// What the trie should find, by comparing with every entry.
int longest(const std::set<PrefixEntry*>& entries, const Tokens& tokens) {
  int best = 0;
  for (const auto* entry : entries) {
    int length = common(entry->tokens, tokens);
    best = length >= entry->shortest ? std::max(best, length) : best;
  }
  return best;
}

TEST(PrefixTrie, FindsWhatComparingWithEverythingFinds) {
  Prompts prompts;
  PrefixTrie trie;
  std::set<PrefixEntry*> entries;
  int found = 0;
  for (int round = 0; round < 4000; ++round) {
    Tokens tokens = prompts.next();
    int size = static_cast<int>(tokens.size());
    if (prompts.below(3) == 0) {
      // Cut back anywhere, nowhere, or to some lengths.
      int shortest[] = {0, size, size - size / 3};
      entries.insert(trie.insert(entry_of(tokens, shortest[prompts.below(3)])));
    }
    if (entries.size() > 60 || (!entries.empty() && prompts.below(6) == 0)) {
      auto victim = std::next(entries.begin(), prompts.below(entries.size()));
      auto removed = trie.remove(*victim);
      ASSERT_EQ(removed.get(), *victim);
      entries.erase(victim);
    }
    Tokens asked = prompts.next();
    auto match = trie.find(asked);
    ASSERT_EQ(match.length, longest(entries, asked));
    if (match.entry) {
      ++found;
      ASSERT_TRUE(entries.count(match.entry));
      ASSERT_GE(common(match.entry->tokens, asked), match.length);
      ASSERT_LE(match.entry->shortest, match.length);
    }
    int nearest = 0;
    std::vector<PrefixEntry*> whole;
    for (auto* entry : entries) {
      nearest = std::max(nearest, common(entry->tokens, asked));
      if (common(entry->tokens, asked) == entry->size()) {
        whole.push_back(entry);
      }
    }
    ASSERT_EQ(trie.nearest(asked).length, nearest);
    auto on_path = trie.on_path(asked);
    ASSERT_TRUE(std::ranges::is_sorted(on_path, {}, &PrefixEntry::size));
    std::ranges::sort(on_path);
    std::ranges::sort(whole);
    ASSERT_EQ(on_path, whole);
    ASSERT_EQ(trie.entries().size(), entries.size());
  }
  EXPECT_GT(found, 1000);
}

TEST(PrefixTrie, KnowsWhichStartIsUsedLongerThanTheEnd) {
  PrefixTrie trie;
  Tokens tokens(300, 7);
  auto entry = entry_of(tokens, 0);
  entry->used = 1;
  PrefixEntry* kept = trie.insert(std::move(entry));
  EXPECT_EQ(PrefixTrie::used_since(*kept), nullptr);
  trie.touch(kept, 100, 2);  // into the second block
  ASSERT_NE(PrefixTrie::used_since(*kept), nullptr);
  EXPECT_EQ(PrefixTrie::used_since(*kept)->depth, 128);
  EXPECT_EQ(kept->used, 1u);
  trie.touch(kept, 290, 3);  // into the tail after four blocks
  EXPECT_EQ(PrefixTrie::used_since(*kept), nullptr);
  EXPECT_EQ(kept->used, 3u);
}

}  // namespace
}  // namespace mlxx::engine
