#include "mlxx/text/grammar.h"

#include <random>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::text {
namespace {

constexpr int32_t kEos = 257;         // </s> of the tiny tokenizer
constexpr int32_t kVocabulary = 300;  // padded beyond its 259 tokens

std::shared_ptr<const GrammarTokens> tokens() {
  auto tokenizer =
      Tokenizer::from_json(generate::tiny_tokenizer_json({}, false));
  return GrammarTokens::make(*tokenizer, kVocabulary, {&kEos, 1});
}

bool allows(const std::vector<uint32_t>& mask, int32_t token) {
  return (mask[token / 32] >> (token % 32)) & 1;
}

std::vector<uint32_t> mask_of(GrammarMatcher& matcher) {
  std::vector<uint32_t> mask((kVocabulary + 31) / 32);
  matcher.mask(mask);
  return mask;
}

// Walks at random through what the masks allow.
std::string walk(GrammarMatcher& matcher, std::mt19937& random) {
  std::string text;
  for (int step = 0; step < 400; ++step) {
    auto mask = mask_of(matcher);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < kVocabulary; ++token) {
      if (allows(mask, token)) {
        allowed.push_back(token);
      }
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing is allowed after " << text;
      return text;
    }
    int32_t token =
        allows(mask, kEos) ? kEos : allowed[random() % allowed.size()];
    EXPECT_TRUE(matcher.commit(token));
    if (token == kEos) {
      return text;
    }
    text += static_cast<char>(token);
  }
  return text;
}

TEST(Grammar, WalksThroughASchemaAreValidJson) {
  auto shared = tokens();
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    GrammarMatcher matcher(
        shared,
        GrammarKind::json_schema,
        R"({"type":"object","properties":{"n":{"type":"integer","minimum":-9,
            "maximum":9},"b":{"enum":["x","yy"]},"l":{"type":"array",
            "items":{"type":"boolean"},"maxItems":2}},
            "required":["n","b","l"],"additionalProperties":false})");
    std::string text = walk(matcher, random);
    Json json = parse_json(text, "walk");
    EXPECT_LE(std::abs(json["n"].get<int>()), 9) << text;
    EXPECT_TRUE(json["b"] == "x" || json["b"] == "yy") << text;
    EXPECT_LE(json["l"].size(), 2u) << text;
    EXPECT_TRUE(text.starts_with("{\"n\": ")) << text;
    EXPECT_TRUE(matcher.is_stopped());
    auto mask = mask_of(matcher);
    EXPECT_TRUE(allows(mask, kEos));
    EXPECT_FALSE(allows(mask, '}'));
    EXPECT_FALSE(matcher.commit('}'));
    matcher.rollback(2);  // the end and the last brace
    EXPECT_FALSE(matcher.is_stopped());
    EXPECT_TRUE(allows(mask_of(matcher), '}'));
  }
}

TEST(Grammar, PaddingAndControlTokensAreNeverAllowed) {
  GrammarMatcher matcher(tokens(), GrammarKind::regex, "(.|\n)*");
  auto mask = mask_of(matcher);
  EXPECT_TRUE(allows(mask, 'a'));
  EXPECT_TRUE(allows(mask, kEos));
  EXPECT_FALSE(allows(mask, 256));
  for (int32_t token = 259; token < 320; ++token) {
    EXPECT_FALSE(allows(mask, token)) << token;
  }
}

TEST(Grammar, RefusedTokensChangeNothing) {
  GrammarMatcher matcher(tokens(), GrammarKind::regex, "ab*c");
  EXPECT_FALSE(matcher.commit('b'));
  EXPECT_TRUE(matcher.commit('a'));
  EXPECT_FALSE(matcher.commit('x'));
  EXPECT_FALSE(matcher.is_accepting());
  const std::vector<int32_t> next = {'b', 'b', 'c', 'c'};
  EXPECT_EQ(matcher.validate(next), 3u);
  EXPECT_TRUE(matcher.commit('c'));
  EXPECT_TRUE(matcher.is_accepting());
  EXPECT_THROW(matcher.commit(-1), Error);
  EXPECT_THROW(matcher.commit(kVocabulary), Error);
}

TEST(Grammar, RollsBackAndClonesIndependently) {
  GrammarMatcher matcher(
      tokens(),
      GrammarKind::lark,
      "start: \"a\" (\"b\" | \"c\") \"d\"");
  EXPECT_TRUE(matcher.commit('a'));
  GrammarMatcher copy = matcher.clone();
  EXPECT_TRUE(matcher.commit('b'));
  EXPECT_TRUE(copy.commit('c'));
  EXPECT_EQ(copy.forced(), std::vector<int32_t>{'d'});
  matcher.rollback(1);
  EXPECT_TRUE(matcher.commit('c'));
  EXPECT_THROW(matcher.rollback(3), Error);
  EXPECT_TRUE(matcher.commit('d'));
  EXPECT_TRUE(matcher.is_accepting());
}

TEST(Grammar, RefusesWhatItCannotHonour) {
  auto shared = tokens();
  auto refuses = [&](GrammarKind kind, const std::string& grammar) {
    try {
      GrammarMatcher matcher(shared, kind, grammar);
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::invalid_request;
    }
  };
  EXPECT_TRUE(refuses(GrammarKind::json_schema, "{"));
  EXPECT_TRUE(refuses(GrammarKind::json_schema, R"({"type":"nothing"})"));
  EXPECT_TRUE(refuses(GrammarKind::json_schema, R"({"not":{"type":"null"}})"));
  EXPECT_TRUE(refuses(GrammarKind::json_schema, R"({"$ref":"http://x/y"})"));
  EXPECT_TRUE(refuses(GrammarKind::regex, "(?=a)b"));
  EXPECT_TRUE(refuses(GrammarKind::regex, "("));
  EXPECT_TRUE(refuses(GrammarKind::lark, "start: missing"));
  EXPECT_TRUE(refuses(GrammarKind::regex, std::string(60'000, '(')));
  EXPECT_TRUE(refuses(GrammarKind::lark, "start: " + std::string(60'000, '(')));
  // A derivative of it has as many alternatives as it has letters.
  std::string optional_letters;
  for (int i = 0; i < 60'000; ++i) {
    optional_letters += {static_cast<char>('a' + i % 13), '?'};
  }
  const std::string pattern = "\"" + optional_letters + "\"";
  EXPECT_TRUE(refuses(GrammarKind::regex, optional_letters));
  for (const std::string& schema :
       {R"({"pattern":)" + pattern + "}",
        R"({"items":{"patternProperties":{)" + pattern + R"(:true}}})"}) {
    EXPECT_TRUE(refuses(GrammarKind::json_schema, schema));
  }
  EXPECT_FALSE(refuses(GrammarKind::regex, optional_letters.substr(0, 200)));
  std::string deep;
  for (int i = 0; i < 5000; ++i) {
    deep += R"({"items":)";
  }
  EXPECT_TRUE(refuses(GrammarKind::json_schema, deep));
  // A cycle of references is a recursive grammar, not an endless loop.
  GrammarMatcher cycle(
      shared,
      GrammarKind::json_schema,
      R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array",
          "items":{"$ref":"#/$defs/a"}}}})");
  EXPECT_TRUE(cycle.commit('['));
}

TEST(Grammar, RefusesAWrongMaskOrVocabulary) {
  GrammarMatcher matcher(tokens(), GrammarKind::regex, "a");
  std::vector<uint32_t> small(2);
  EXPECT_THROW(matcher.mask(small), Error);
  auto tokenizer =
      Tokenizer::from_json(generate::tiny_tokenizer_json({}, false));
  EXPECT_THROW(GrammarTokens::make(*tokenizer, 300, {}), Error);
  EXPECT_THROW(GrammarTokens::make(*tokenizer, 100, {&kEos, 1}), Error);
  EXPECT_THROW(GrammarTokens::make(*tokenizer, 0, {&kEos, 1}), Error);
}

}  // namespace
}  // namespace mlxx::text
