#include "mlxx/hub/gguf_tokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/hub/gguf_file.h"
#include "mlxx/text/tokenizer.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx::hub {
namespace {

class GgufTokenizer : public ::testing::Test {
 protected:
  TextFiles read(const GgufBuilder& builder) {
    GgufFile file(folder_.write("model.gguf", builder.build()));
    return make_gguf_text(file.metadata());
  }
  std::vector<int32_t> encode(
      const GgufBuilder& builder,
      const std::string& text,
      bool add_special_tokens = false) {
    auto tokenizer = text::Tokenizer::from_json(read(builder).tokenizer_json);
    auto ids = tokenizer->encode(
        text,
        {.add_special_tokens = add_special_tokens, .parse_special = true});
    if (!add_special_tokens) {
      EXPECT_EQ(tokenizer->decode(ids), text);
    }
    return ids;
  }
  void expect_error(
      const GgufBuilder& builder,
      const std::string& kind,
      const std::string& part) {
    std::string message = error_of([&] { read(builder); });
    EXPECT_TRUE(message.starts_with(kind + ": ")) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }

  TemporaryFolder folder_;
};

using Ids = std::vector<int32_t>;

// Letters and digits byte by byte, with a few words.
GgufBuilder byte_level(const std::string& pre) {
  GgufBuilder b;
  b.string("tokenizer.ggml.model", "gpt2");
  b.string("tokenizer.ggml.pre", pre);
  b.strings(
      "tokenizer.ggml.tokens",
      {"<s>",
       "1",
       "2",
       "12",
       "a",
       "b",
       "ab",
       "Ġ",
       "Ġa",
       "<think>",
       "3",
       "4",
       "1234",
       "34",
       "123",
       "",
       "[PAD16]",
       "\"\\",
       "\x01"});
  b.list<int32_t>(
      "tokenizer.ggml.token_type",
      5,
      {3, 1, 1, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1, 1, 5, 1, 1});
  b.strings(
      "tokenizer.ggml.merges",
      {"a b", "Ġ a", "1 2", "3 4", "12 34", "12 3"});
  b.u32("tokenizer.ggml.bos_token_id", 0);
  return b;
}

TEST_F(GgufTokenizer, EachPreTokenizerSplitsDigitsItsOwnWay) {
  EXPECT_EQ(encode(byte_level("smollm"), "1234"), (Ids{1, 2, 10, 11}));
  EXPECT_EQ(encode(byte_level("starcoder"), "12"), (Ids{1, 2}));
  EXPECT_EQ(encode(byte_level("gpt-2"), "1234"), (Ids{12}));
  EXPECT_EQ(encode(byte_level("qwen2"), "1234"), (Ids{1, 2, 10, 11}));
  EXPECT_EQ(encode(byte_level("llama-bpe"), "1234"), (Ids{14, 11}));
}

TEST_F(GgufTokenizer, SpecialAndUserTokensAreFoundInText) {
  auto b = byte_level("smollm");
  EXPECT_EQ(encode(b, "a<think> ab<s>b"), (Ids{4, 9, 7, 6, 0, 5}));
  Json json = Json::parse(read(b).tokenizer_json);
  ASSERT_EQ(json["added_tokens"].size(), 2u);
  EXPECT_EQ(json["added_tokens"][0]["content"], "<s>");
  EXPECT_EQ(json["added_tokens"][0]["special"], true);
  EXPECT_EQ(json["added_tokens"][1]["content"], "<think>");
  EXPECT_EQ(json["added_tokens"][1]["special"], false);
  // Holes are not tokens; quotes and control characters are escaped.
  const auto& vocab = json["model"]["vocab"];
  EXPECT_EQ(vocab.size(), 17u);
  EXPECT_FALSE(vocab.contains("[PAD16]"));
  EXPECT_EQ(vocab["\"\\"], 17);
  EXPECT_EQ(vocab["\x01"], 18);
  EXPECT_EQ(json["model"]["merges"][0], Json({"a", "b"}));
  EXPECT_TRUE(json["post_processor"].is_null());
}

TEST_F(GgufTokenizer, LlamaBpeTakesWholeWordsWithoutMerging) {
  auto b = byte_level("llama-bpe");
  EXPECT_EQ(
      Json::parse(read(b).tokenizer_json)["model"]["ignore_merges"],
      true);
  // Begins with bos unless the file says otherwise.
  EXPECT_EQ(encode(b, "ab", true), (Ids{0, 6}));
  b.boolean("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(encode(b, "ab", true), (Ids{6}));
}

TEST_F(GgufTokenizer, BosAndEosAreAddedAsTheFlagsSay) {
  auto b = byte_level("smollm");
  EXPECT_EQ(encode(b, "a", true), (Ids{4}));
  b.boolean("tokenizer.ggml.add_bos_token", true);
  b.boolean("tokenizer.ggml.add_eos_token", true);
  b.u32("tokenizer.ggml.eos_token_id", 9);
  EXPECT_EQ(encode(b, "a", true), (Ids{0, 4, 9}));
  Json config = Json::parse(read(b).tokenizer_config_json);
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["eos_token"], "<think>");
  EXPECT_EQ(config["add_bos_token"], true);
  EXPECT_EQ(config["add_eos_token"], true);
  EXPECT_FALSE(config.contains("pad_token"));
  // The same token at both ends.
  auto same = byte_level("smollm");
  same.boolean("tokenizer.ggml.add_bos_token", true);
  same.boolean("tokenizer.ggml.add_eos_token", true);
  same.u32("tokenizer.ggml.eos_token_id", 0);
  EXPECT_EQ(encode(same, "a", true), (Ids{0, 4, 0}));
}

TEST_F(GgufTokenizer, SpecialIdsOutsideTheVocabularyAreLeftOut) {
  auto b = byte_level("smollm");
  b.u32("tokenizer.ggml.eos_token_id", 19);
  b.u32("tokenizer.ggml.padding_token_id", 0xffffffff);
  Json config = Json::parse(read(b).tokenizer_config_json);
  EXPECT_FALSE(config.contains("eos_token"));
  EXPECT_FALSE(config.contains("pad_token"));
}

TEST_F(GgufTokenizer, UnknownKindsOfTokenizerAreNamed) {
  expect_error(
      byte_level("falcon"),
      "unsupported",
      "'tokenizer.ggml.pre' is 'falcon', an unknown split into words; known: "
      "gpt-2");
  GgufBuilder b;
  b.string("tokenizer.ggml.model", "bert");
  b.strings("tokenizer.ggml.tokens", {"a"});
  expect_error(b, "unsupported", "'tokenizer.ggml.model' is 'bert'");
  GgufBuilder c;
  c.string("tokenizer.ggml.model", "gpt2");
  c.strings("tokenizer.ggml.tokens", {"a"});
  expect_error(c, "unsupported", "'tokenizer.ggml.pre' is missing");
}

GgufBuilder with_merges(const std::vector<std::string>& merges) {
  GgufBuilder b;
  b.string("tokenizer.ggml.model", "gpt2");
  b.string("tokenizer.ggml.pre", "gpt-2");
  b.strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  b.strings("tokenizer.ggml.merges", merges);
  return b;
}

TEST_F(GgufTokenizer, MalformedMergesAreRefused) {
  expect_error(with_merges({}), "bad_file", "missing or empty");
  expect_error(with_merges({"ab"}), "bad_file", "holds 'ab' as rule 0");
  expect_error(with_merges({"a b", "a "}), "bad_file", "as rule 1");
  expect_error(with_merges({""}), "bad_file", "holds '' as rule 0");
  expect_error(with_merges({"a \xff"}), "bad_file", "no pair of tokens");
  // A rule whose parts are no tokens is the tokenizer's to refuse.
  auto text = read(with_merges({"a z"}));
  EXPECT_ERROR(
      text::Tokenizer::from_json(text.tokenizer_json),
      "bad_file",
      "tokenizer.json");
}

TEST_F(GgufTokenizer, MalformedVocabulariesAreRefused) {
  auto with_tokens = [](const std::vector<std::string>& tokens) {
    GgufBuilder b;
    b.string("tokenizer.ggml.model", "gpt2");
    b.string("tokenizer.ggml.pre", "gpt-2");
    b.strings("tokenizer.ggml.merges", {"a b"});
    b.strings("tokenizer.ggml.tokens", tokens);
    return b;
  };
  expect_error(with_tokens({}), "bad_file", "missing or empty");
  expect_error(with_tokens({"a", "\xff"}), "bad_file", "token 1, which is not");
  expect_error(with_tokens({"a", "b", "a"}), "bad_file", "'a' twice, again");
  GgufBuilder types = with_tokens({"a", "b"});
  types.list<int32_t>("tokenizer.ggml.token_type", 5, {1});
  expect_error(types, "bad_file", "has 1 entries for 2 tokens");
  GgufBuilder odd = with_tokens({"a", "b"});
  odd.list<int32_t>("tokenizer.ggml.token_type", 5, {1, 9});
  expect_error(odd, "bad_file", "unknown type 9 for token 1");
}

// SentencePiece: unknown, bos, byte tokens, pieces with scores.
GgufBuilder sentence_piece() {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types{2, 3, 3};
  std::vector<float> scores{0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
    scores.push_back(0);
  }
  float score = 0;
  for (const char* piece :
       {"he",
        "ll",
        "▁he",
        "hell",
        "▁hell",
        "lo",
        "▁hello",
        "▁",
        "h",
        "e",
        "l",
        "o"}) {
    tokens.push_back(piece);
    types.push_back(1);
    scores.push_back(score--);
  }
  GgufBuilder b;
  b.string("tokenizer.ggml.model", "llama");
  b.strings("tokenizer.ggml.tokens", tokens);
  b.list<int32_t>("tokenizer.ggml.token_type", 5, types);
  b.list<float>("tokenizer.ggml.scores", 6, scores);
  b.u32("tokenizer.ggml.bos_token_id", 1);
  b.u32("tokenizer.ggml.eos_token_id", 2);
  return b;
}

constexpr int32_t kFirstPiece = 259;

TEST_F(GgufTokenizer, SentencePieceMergesByScore) {
  auto b = sentence_piece();
  // he, ll, ▁he, ▁hell, ▁hello: each of the best pairs that are left.
  EXPECT_EQ(encode(b, "hello"), (Ids{kFirstPiece + 6}));
  // ll is better than lo.
  EXPECT_EQ(
      encode(b, "llo"),
      (Ids{kFirstPiece + 7, kFirstPiece + 1, kFirstPiece + 11}));
  // A bos before raw text, as its default is.
  EXPECT_EQ(encode(b, "hello", true), (Ids{1, kFirstPiece + 6}));
}

TEST_F(GgufTokenizer, SentencePieceFallsBackToBytes) {
  // ▁, then the bytes of é.
  EXPECT_EQ(
      encode(sentence_piece(), "é"),
      (Ids{kFirstPiece + 7, 3 + 0xc3, 3 + 0xa9}));
}

TEST_F(GgufTokenizer, SentencePieceAddsASpaceInFrontOnlyIfAsked) {
  auto b = sentence_piece();
  b.boolean("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(encode(b, "he"), (Ids{kFirstPiece}));
  EXPECT_EQ(encode(b, " he"), (Ids{kFirstPiece + 2}));
  EXPECT_EQ(encode(sentence_piece(), "he"), (Ids{kFirstPiece + 2}));
}

TEST_F(GgufTokenizer, SentencePieceNeedsAScoreForEachToken) {
  GgufBuilder b;
  b.string("tokenizer.ggml.model", "llama");
  b.strings("tokenizer.ggml.tokens", {"a", "b"});
  expect_error(b, "bad_file", "has 0 entries for 2 tokens");
  b.list<float>("tokenizer.ggml.scores", 6, {0, NAN});
  expect_error(b, "bad_file", "not finite");
}

TEST_F(GgufTokenizer, ChatTemplatesAreReadByName) {
  auto b = byte_level("smollm");
  EXPECT_TRUE(read(b).chat_templates.empty());
  b.string("tokenizer.chat_template.tool_use", "tools");
  b.string("tokenizer.chat_template", "plain");
  b.strings("tokenizer.chat_templates", {"tool_use"});
  auto templates = read(b).chat_templates;
  ASSERT_EQ(templates.size(), 2u);
  EXPECT_EQ(
      templates[0],
      (std::pair<std::string, std::string>("default", "plain")));
  EXPECT_EQ(templates[1].first, "tool_use");
  b.string("tokenizer.chat_template.default", "again");
  expect_error(b, "bad_file", "stands beside");
  auto bad = byte_level("smollm");
  bad.string("tokenizer.chat_template", "\xff");
  expect_error(bad, "bad_file", "not valid UTF-8");
}

}  // namespace
}  // namespace mlxx::hub
