#include "mlxx/text/model_input.h"

#include <gtest/gtest.h>

#include "tests/core/error_of.h"
#include "tests/embed/tiny_word_piece.h"
#include "tests/generate/tiny_tokenizer.h"

namespace mlxx::text {
namespace {

std::shared_ptr<const Tokenizer> word_piece() {
  return Tokenizer::from_json(embed::word_piece_json().dump());
}

std::string pieces(const Tokenizer& tokenizer, const ModelInput& input) {
  std::string text;
  for (size_t i = 0; i < input.ids.size(); ++i) {
    text += fmt::format(
        "{}{}/{}",
        i > 0 ? " " : "",
        tokenizer.id_to_token(input.ids[i]),
        input.types[i]);
  }
  return text;
}

TEST(ModelInput, OneTextHasItsSpecialTokens) {
  auto tokenizer = word_piece();
  EXPECT_EQ(
      pieces(*tokenizer, encode_model_input(*tokenizer, "the capital xy")),
      "[CLS]/0 the/0 capital/0 x/0 ##y/0 [SEP]/0");
  EXPECT_EQ(
      pieces(*tokenizer, encode_model_input(*tokenizer, "")),
      "[CLS]/0 [SEP]/0");
}

TEST(ModelInput, APairHasTheTypesOfItsTexts) {
  auto tokenizer = word_piece();
  EXPECT_EQ(
      pieces(*tokenizer, encode_model_input(*tokenizer, "of?", "rome")),
      "[CLS]/0 of/0 ?/0 [SEP]/0 rome/1 [SEP]/1");
  EXPECT_EQ(
      pieces(*tokenizer, encode_model_input(*tokenizer, "of?", "")),
      "[CLS]/0 of/0 ?/0 [SEP]/0 [SEP]/1");
}

TEST(ModelInput, ALimitCutsTheTextAndKeepsTheSpecialTokens) {
  auto tokenizer = word_piece();
  auto cut = encode_model_input(
      *tokenizer,
      "the capital of rome",
      std::nullopt,
      {.max_tokens = 4});
  EXPECT_EQ(pieces(*tokenizer, cut), "[CLS]/0 the/0 capital/0 [SEP]/0");
  EXPECT_EQ(cut.dropped, 2);
  // Of a pair the longer text.
  cut = encode_model_input(
      *tokenizer,
      "paris",
      "the capital of rome",
      {.max_tokens = 6});
  EXPECT_EQ(
      pieces(*tokenizer, cut),
      "[CLS]/0 paris/0 [SEP]/0 the/1 capital/1 [SEP]/1");
  EXPECT_EQ(cut.dropped, 2);
  auto whole = encode_model_input(
      *tokenizer,
      "the capital of rome",
      std::nullopt,
      {.max_tokens = 6});
  EXPECT_EQ(whole.dropped, 0);
  EXPECT_EQ(whole.ids.size(), 6u);
}

TEST(ModelInput, LowerCaseIsOfTheWholeAlphabet) {
  auto tokenizer = word_piece();
  EXPECT_EQ(
      pieces(*tokenizer, encode_model_input(*tokenizer, "Rome")),
      "[CLS]/0 [UNK]/0 [SEP]/0");
  EXPECT_EQ(
      pieces(
          *tokenizer,
          encode_model_input(
              *tokenizer,
              "Rome",
              std::nullopt,
              {.lower_case = true})),
      "[CLS]/0 rome/0 [SEP]/0");
}

TEST(ModelInput, ControlTokensAreReadAsSuch) {
  auto tokenizer = word_piece();
  EXPECT_EQ(
      pieces(*tokenizer, encode_model_input(*tokenizer, "of [SEP] rome")),
      "[CLS]/0 of/0 [SEP]/0 rome/0 [SEP]/0");
}

TEST(ModelInput, ATokenizerWithoutATemplateAddsNothing) {
  auto tokenizer =
      Tokenizer::from_json(generate::tiny_tokenizer_json({}, false));
  auto input = encode_model_input(*tokenizer, "ab", "c");
  EXPECT_EQ(input.ids.size(), 3u);
  EXPECT_TRUE(encode_model_input(*tokenizer, "").ids.empty());
}

TEST(ModelInput, WhatCannotBeDoneIsRefused) {
  auto tokenizer = word_piece();
  EXPECT_ERROR(
      encode_model_input(*tokenizer, "of", std::nullopt, {.max_tokens = 2}),
      "invalid_request",
      "2 tokens leave no room beside 2 special ones");
  EXPECT_ERROR(
      encode_model_input(*tokenizer, "of", "rome", {.max_tokens = 3}),
      "invalid_request",
      "3 tokens leave no room beside 3 special ones");
  EXPECT_ERROR(
      encode_model_input(*tokenizer, "\xff"),
      "invalid_request",
      "not valid UTF-8");
  EXPECT_ERROR(
      encode_model_input(*tokenizer, "of", "\xff"),
      "invalid_request",
      "not valid UTF-8");
}

}  // namespace
}  // namespace mlxx::text
