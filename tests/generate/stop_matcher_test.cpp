#include "mlxx/generate/stop_matcher.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/utf8.h"

namespace mlxx::generate {
namespace {

struct Outcome {
  std::string text;
  std::string stop;
  bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << '"' << outcome.text << "\" stopped by \"" << outcome.stop << '"';
}

Outcome run(
    const std::vector<std::string>& stops,
    const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.text += matcher.step(piece);
  }
  outcome.text += matcher.flush();
  outcome.stop = matcher.matched_stop();
  return outcome;
}

// The definition, over the whole text at once.
Outcome expected(
    const std::vector<std::string>& stops,
    const std::string& text) {
  size_t best_end = std::string::npos;
  const std::string* best = nullptr;
  for (const std::string& stop : stops) {
    size_t at = text.find(stop);
    if (at == std::string::npos) {
      continue;
    }
    size_t end = at + stop.size();
    if (!best || end < best_end ||
        (end == best_end && stop.size() > best->size())) {
      best = &stop;
      best_end = end;
    }
  }
  if (!best) {
    return {text, ""};
  }
  return {text.substr(0, best_end - best->size()), *best};
}

TEST(StopMatcher, WithoutStopsTextPassesThrough) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.step("abc"), "abc");
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, FindsAMatchAcrossPieces) {
  std::vector<std::string> pieces = {"alp", "ha b", "eta", " gam", "ma"};
  EXPECT_EQ(run({"beta gamma"}, pieces), (Outcome{"alpha ", "beta gamma"}));
  EXPECT_EQ(run({"a b"}, pieces), (Outcome{"alph", "a b"}));
  EXPECT_EQ(run({"gamma"}, pieces), (Outcome{"alpha beta ", "gamma"}));
  EXPECT_EQ(run({"alpha"}, pieces), (Outcome{"", "alpha"}));
  EXPECT_EQ(run({"delta"}, pieces), (Outcome{"alpha beta gamma", ""}));
  EXPECT_EQ(
      run({"gamma", "eta", "delta", "beta g"}, pieces),
      (Outcome{"alpha b", "eta"}));
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAMatch) {
  StopMatcher matcher({"###", "\n\nUser:"});
  EXPECT_EQ(matcher.step("Hello"), "Hello");
  EXPECT_EQ(matcher.step(" #"), " ");
  EXPECT_EQ(matcher.step("1"), "#1");
  EXPECT_EQ(matcher.step("\n"), "");
  EXPECT_EQ(matcher.step("\n"), "");
  EXPECT_EQ(matcher.step("\n"), "\n");
  EXPECT_EQ(matcher.step("User"), "");
  EXPECT_EQ(matcher.step("!"), "\n\nUser!");
  EXPECT_EQ(matcher.step("##"), "");
  EXPECT_EQ(matcher.flush(), "##");
}

TEST(StopMatcher, NothingComesAfterAMatch) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.step("one END two"), "one ");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.step("three"), "");
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_EQ(matcher.matched_stop(), "END");
}

TEST(StopMatcher, OfMatchesThatEndTogetherTheLongestCounts) {
  EXPECT_EQ(run({"c", "abc", "bc"}, {"xabc"}), (Outcome{"x", "abc"}));
  EXPECT_EQ(run({"abcd", "bc"}, {"a", "b", "c", "d"}), (Outcome{"a", "bc"}));
  EXPECT_EQ(run({"abcd", "bc"}, {"abcd"}), (Outcome{"a", "bc"}));
}

TEST(StopMatcher, OverlappingPrefixesDoNotHideAMatch) {
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b"}), (Outcome{"a", "aab"}));
  EXPECT_EQ(run({"ababc"}, {"abababc"}), (Outcome{"ab", "ababc"}));
  EXPECT_EQ(run({"aa"}, {"aaa"}), (Outcome{"", "aa"}));
}

TEST(StopMatcher, ReleasesWholeCharacters) {
  // The stop's first byte starts the other character too.
  StopMatcher matcher({"é!", "終わり"});
  EXPECT_EQ(matcher.step("è"), "è");
  EXPECT_EQ(matcher.step("é"), "");
  EXPECT_EQ(matcher.step("終"), "é");
  EXPECT_EQ(matcher.step("わ"), "");
  EXPECT_EQ(matcher.step("終"), "終わ");
  EXPECT_EQ(matcher.step("わり"), "");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, AMovedMatcherStillKnowsItsMatch) {
  StopMatcher first({"x"});
  first.step("ax");
  StopMatcher second = std::move(first);
  EXPECT_EQ(second.matched_stop(), "x");
}

TEST(StopMatcher, AnyCutGivesTheSameTextAndHoldsBackTheLeast) {
  std::mt19937 random(7);
  const std::vector<std::string> alphabet = {"a", "b", "é", "😀"};
  auto word = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) {
      text += alphabet[random() % alphabet.size()];
    }
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i < 1 + random() % 4; ++i) {
      stops.push_back(word(1 + random() % 5));
    }
    std::vector<std::string> pieces;
    std::string text;
    for (size_t i = 0; i < random() % 8; ++i) {
      pieces.push_back(word(random() % 4));
      text += pieces.back();
    }
    Outcome outcome = expected(stops, text);
    ASSERT_EQ(run(stops, pieces), outcome);

    StopMatcher matcher(stops);
    std::string fed;
    std::string released;
    for (const std::string& piece : pieces) {
      std::string certain = matcher.step(piece);
      ASSERT_TRUE(is_valid_utf8(certain));
      fed += piece;
      released += certain;
      // Nothing of a match leaks.
      ASSERT_EQ(outcome.text.substr(0, released.size()), released);
      if (matcher.matched()) {
        break;
      }
      // What is held is a proper prefix of some stop.
      std::string held = fed.substr(released.size());
      ASSERT_TRUE(
          held.empty() ||
          std::any_of(
              stops.begin(),
              stops.end(),
              [&](const auto& stop) {
                return stop.size() > held.size() && stop.starts_with(held);
              }))
          << held;
    }
  }
}

}  // namespace
}  // namespace mlxx::generate
