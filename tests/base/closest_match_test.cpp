#include "mlxx/base/closest_match.h"

#include <gtest/gtest.h>

namespace mlxx {
namespace {

const std::vector<std::string> kVerbs = {"generate", "chat", "list", "rm"};

TEST(ClosestMatch, FindsWhatWasMistyped) {
  EXPECT_EQ(closest_match("genrate", kVerbs), "generate");
  EXPECT_EQ(closest_match("chta", kVerbs), "chat");
  EXPECT_EQ(closest_match("LIST", kVerbs), "list");
  EXPECT_EQ(closest_match("gen", kVerbs), "generate");
}

TEST(ClosestMatch, FindsNothingNear) {
  EXPECT_EQ(closest_match("transcribe", kVerbs), std::nullopt);
  EXPECT_EQ(closest_match("", kVerbs), std::nullopt);
  EXPECT_EQ(closest_match("x", kVerbs), std::nullopt);
  EXPECT_EQ(closest_match("list", {}), std::nullopt);
  EXPECT_EQ(closest_match(std::string(100000, 'a'), kVerbs), std::nullopt);
}

TEST(ClosestMatch, TakesTheNearest) {
  EXPECT_EQ(closest_match("--top-pp", {"--top-k", "--top-p"}), "--top-p");
  // Two begin like this: the nearest by letters, if any.
  EXPECT_EQ(closest_match("--top", {"--top-k", "--top-p"}), "--top-k");
}

}  // namespace
}  // namespace mlxx
