#include "mlxx/data/batch_layout.h"

#include <gtest/gtest.h>

#include "mlxx/data/batch_text.h"
#include "tests/data/small_data.h"

namespace mlxx::data {
namespace {

using Texts = std::vector<std::string>;

// <s>user\nQ<end>\n<s>assistant\n takes 20 tokens.
constexpr const char* kPair =
    R"({"prompt": "Q", "chosen": "yes", "rejected": "never"})";

struct SmallPairs : SmallData {
  SmallPairs() {
    options.preference = true;
  }
};

std::string segment_text(
    const SmallData& made,
    const Batch& batch,
    const Segment& segment) {
  return made.text(std::span(batch.tokens)
                       .subspan(
                           static_cast<size_t>(segment.begin),
                           static_cast<size_t>(segment.end - segment.begin)));
}

TEST(PaddedBatch, HasRowsOfAMultipleOf32) {
  SmallData made;
  auto data = made.open("{\"text\": \"abc\"}\n{\"text\": \"abcdefgh\"}\n");
  Batch batch = data->batch(0);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 32);
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(made.targets(batch, 0), (Texts{"bc</s>"}));
  EXPECT_EQ(made.targets(batch, 1), (Texts{"bcdefgh</s>"}));
  EXPECT_EQ(batch.target_count(), 3 + 8);
  for (size_t i = 4; i < 32; ++i) {
    EXPECT_EQ(batch.tokens[i], 0);
    EXPECT_EQ(batch.targets[i], 0);
  }
  made.options.max_length = 6;
  EXPECT_EQ(made.open("{\"text\": \"abcdefgh\"}\n")->batch(0).length, 6);
}

TEST(PaddedBatch, OfPairsHasTheChosenAndTheRejectedAnswerInRows) {
  SmallPairs made;
  Batch batch = made.open(std::string(kPair) + "\n" + kPair)->batch(0);
  EXPECT_EQ(batch.rows, 4);
  EXPECT_EQ(batch.pairs, (std::vector<Batch::Pair>{{0, 1}, {2, 3}}));
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(made.targets(batch, 2), (Texts{"yes<end>\n"}));
  EXPECT_EQ(made.targets(batch, 3), (Texts{"never<end>\n"}));
}

TEST(PaddedBatch, CutsTheBeginningOfAPairsPromptSoThatAnswersStay) {
  SmallPairs made;
  made.options.max_length = 12;
  Batch batch = made.open(kPair)->batch(0);
  EXPECT_EQ(batch.length, 12);
  EXPECT_EQ(
      made.text(std::span(batch.tokens).subspan(12)),
      "<s>ant\nnever<end>\n");
  EXPECT_EQ(made.targets(batch, 0), (Texts{"yes<end>\n"}));
  EXPECT_EQ(made.targets(batch, 1), (Texts{"never<end>\n"}));
  // Answers that are too long themselves lose their ends.
  made.options.max_length = 4;
  batch = made.open(kPair)->batch(0);
  EXPECT_EQ(made.targets(batch, 0), (Texts{"yes"}));
  EXPECT_EQ(made.targets(batch, 1), (Texts{"nev"}));
}

TEST(PaddedBatch, OfPairsWithWholeConversations) {
  SmallPairs made;
  Batch batch = made.open(R"({"chosen": [{"role": "user", "content": "a"},)"
                          R"({"role": "assistant", "content": "b"},)"
                          R"({"role": "user", "content": "c"},)"
                          R"({"role": "assistant", "content": "d"}],)"
                          R"("rejected": [{"role": "user", "content": "a"},)"
                          R"({"role": "assistant", "content": "b"},)"
                          R"({"role": "user", "content": "c"},)"
                          R"({"role": "assistant", "content": "e"}]})")
                    ->batch(0);
  EXPECT_EQ(made.targets(batch, 0), (Texts{"d<end>\n"}));
  EXPECT_EQ(made.targets(batch, 1), (Texts{"e<end>\n"}));
}

TEST(PackedBatch, PutsSamplesBehindOneAnother) {
  SmallData made;
  made.options.pack = true;
  made.options.max_length = 32;
  made.options.batch_size = 2;
  auto data = made.open(
      "{\"text\": \"abc\"}\n{\"text\": \"abcdefgh\"}\n{\"text\": \"hi\"}\n");
  ASSERT_EQ(data->batches_per_epoch(), 1);
  Batch batch = data->batch(0);
  EXPECT_EQ(batch.rows, 1);
  EXPECT_EQ(batch.length, 32);
  EXPECT_EQ(
      batch.segments,
      (std::vector<Segment>{{0, 4, -1, 0}, {4, 13, -1, 1}, {13, 15, -1, 2}}));
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(made.targets(batch), (Texts{"bc</s>", "bcdefgh</s>", "</s>"}));
  EXPECT_EQ(batch.target_count(), 3 + 8 + 1);
}

TEST(PackedBatch, HasRowsOfFewLengths) {
  SmallData made;
  made.options.pack = true;
  made.options.max_length = 512;
  made.options.batch_size = 4;
  std::set<int> lengths;
  for (int size = 1; size < 512; size += 9) {
    lengths.insert(made.open("{\"text\": \"" + std::string(size, 'x') + "\"}\n")
                       ->batch(0)
                       .length);
  }
  EXPECT_EQ(lengths, (std::set<int>{128, 256, 384, 512}));
}

TEST(PackedBatch, OfPairsHasThePromptOnce) {
  SmallPairs made;
  made.options.pack = true;
  made.options.max_length = 32;
  made.options.batch_size = 2;
  Batch batch = made.open(std::string(kPair) + "\n" + kPair)->batch(0);
  ASSERT_EQ(batch.segments.size(), 6u);
  EXPECT_EQ(batch.pairs, (std::vector<Batch::Pair>{{1, 2}, {4, 5}}));
  EXPECT_EQ(
      segment_text(made, batch, batch.segments[3]),
      "<s>user\nQ<end>\n<s>assistant\n");
  EXPECT_EQ(batch.segments[4].parent, 3);
  EXPECT_EQ(batch.segments[5].parent, 3);
  EXPECT_EQ(segment_text(made, batch, batch.segments[5]), "never<end>\n");
  // First tokens of answers are predicted from the prompt's last one.
  EXPECT_EQ(batch.target_count(), 2 * (5 + 7));
  made.options.share_prompts = false;
  batch = made.open(kPair)->batch(0);
  ASSERT_EQ(batch.segments.size(), 2u);
  EXPECT_EQ(
      segment_text(made, batch, batch.segments[1]),
      "<s>user\nQ<end>\n<s>assistant\nnever<end>\n");
  EXPECT_EQ(batch.pairs, (std::vector<Batch::Pair>{{0, 1}}));
  EXPECT_EQ(batch.target_count(), 5 + 7);
}

TEST(BatchAsText, ShowsWhatIsToBePredicted) {
  SmallPairs made;
  EXPECT_EQ(
      batch_as_text(made.open(kPair)->batch(0), *made.tokenizer),
      "2 rows of 52 tokens, 12 of them to predict (between ⟦ and ⟧), 12 "
      "padding\n"
      "--- row 0, sample 0, chosen: 25 tokens, 5 to predict\n"
      "<s>user\nQ<end>\n<s>assistant\n⟦yes<end>\n⟧\n"
      "--- row 1, sample 0, rejected: 27 tokens, 7 to predict\n"
      "<s>user\nQ<end>\n<s>assistant\n⟦never<end>\n⟧\n");
  made.options.pack = true;
  std::string packed =
      batch_as_text(made.open(kPair)->batch(0), *made.tokenizer);
  EXPECT_NE(
      packed.find("--- segment 0, sample 0, prompt: 20 tokens, 0 to predict\n"),
      std::string::npos)
      << packed;
  EXPECT_NE(packed.find("⟦yes<end>\n⟧"), std::string::npos) << packed;
}

TEST(BatchAsText, EscapesControlCharactersAndHalfCharacters) {
  SmallData made;
  made.options.max_length = 4;
  EXPECT_NE(
      batch_as_text(
          made.open("{\"text\": \"a\\u001b\xC3\xA4\xC3\xA4\"}")->batch(0),
          *made.tokenizer)
          .find("a⟦\\x1bä⟧"),
      std::string::npos);
  made.options.max_length = 3;
  EXPECT_NE(
      batch_as_text(
          made.open("{\"text\": \"a\\u001b\xC3\xA4\xC3\xA4\"}")->batch(0),
          *made.tokenizer)
          .find("a⟦\\x1b\uFFFD⟧"),
      std::string::npos);
}

}  // namespace
}  // namespace mlxx::data
