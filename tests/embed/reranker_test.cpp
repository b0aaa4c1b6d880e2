#include "mlxx/embed/reranker.h"

#include <gtest/gtest.h>

#include "tests/core/error_of.h"
#include "tests/embed/tiny_encoder.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::embed {
namespace {

const std::vector<std::string> kDocuments = {
    "paris",
    "the capital of rome is rome.",
    "",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j "
    "k"};

TEST(Reranker, ScoresDoNotDependOnTheOtherDocuments) {
  if (mx::default_device() != mx::Device::cpu) {
    GTEST_SKIP() << "bits are promised for the CPU only";
  }
  TinyEncoderFolder folder;
  auto reranker = Reranker::load(folder.path(), load_with(false));
  auto all = reranker->score("the capital?", kDocuments);
  ASSERT_EQ(all.values.shape(), (mx::Shape{4, 1}));
  for (int i = 0; i < 4; ++i) {
    std::vector<std::string> alone = {kDocuments[i]};
    EXPECT_TRUE(same_bits(
        mx::slice(all.values, {i, 0}, {i + 1, 1}),
        reranker->score("the capital?", alone).values))
        << i;
  }
}

TEST(Reranker, OneScoreIsFromZeroToOneUnlessTheConfigSaysOtherwise) {
  TinyEncoderFolder folder;
  auto reranker = Reranker::load(folder.path(), load_with(false));
  EXPECT_TRUE(reranker->applies_sigmoid());
  mx::array raw =
      reranker->score("rome?", kDocuments, {.raw_scores = true}).values;
  mx::array scores = reranker->score("rome?", kDocuments).values;
  EXPECT_LT(relative_error(scores, mx::sigmoid(raw)), 1e-6);

  Json config = tiny_bert_config();
  config["sbert_ce_default_activation_function"] =
      "torch.nn.modules.linear.Identity";
  folder.write("config.json", config.dump());
  reranker = Reranker::load(folder.path(), load_with(false));
  EXPECT_FALSE(reranker->applies_sigmoid());
  EXPECT_TRUE(same_bits(reranker->score("rome?", kDocuments).values, raw));

  config["sentence_transformers"] = {{"activation_fn", "torch.nn.ReLU"}};
  folder.write("config.json", config.dump());
  EXPECT_ERROR(
      Reranker::load(folder.path(), load_with(false)),
      "unsupported",
      "'torch.nn.ReLU' is not Sigmoid or Identity");
}

TEST(Reranker, TheOrderOfQueryAndDocumentMatters) {
  TinyEncoderFolder folder;
  auto reranker = Reranker::load(folder.path(), load_with(false));
  std::vector<std::string> a = {"rome"}, b = {"the capital"};
  float forth = reranker->score("the capital", a).values.item<float>();
  float back = reranker->score("rome", b).values.item<float>();
  EXPECT_GT(std::abs(forth - back), 1e-4);
}

TEST(Reranker, LabelsAreAsManyAsTheConfigNames) {
  Json config = tiny_bert_config();
  config["id2label"] = {{"0", "no"}, {"1", "maybe"}, {"2", "yes"}};
  TinyEncoderFolder folder(config);
  auto reranker = Reranker::load(folder.path(), load_with(false));
  EXPECT_EQ(reranker->labels(), 3);
  EXPECT_EQ(
      reranker->label_names(),
      (std::vector<std::string>{"no", "maybe", "yes"}));
  EXPECT_FALSE(reranker->applies_sigmoid());
  EXPECT_EQ(reranker->score("a", kDocuments).values.shape(), (mx::Shape{4, 3}));
  config["id2label"] = {{"0", "no"}, {"1", "yes"}};
  folder.write("config.json", config.dump());
  EXPECT_ERROR(
      Reranker::load(folder.path(), load_with(false)),
      "bad_file",
      "'classifier.weight' has shape [3, 64], the config asks for [2, 64]");
}

TEST(Reranker, LongPairsAreCutOffAndSaid) {
  TinyEncoderFolder folder;
  auto reranker = Reranker::load(folder.path(), load_with(false));
  auto scores = reranker->score("the capital?", kDocuments, {.max_tokens = 20});
  EXPECT_EQ(scores.dropped[0], 0);
  EXPECT_EQ(scores.dropped[3], 37 + 3 + 3 - 20);
}

TEST(Reranker, AModelWithoutAHeadIsRefused) {
  TinyEncoderFolder folder;
  folder.tensors.erase("classifier.weight");
  folder.write_weights();
  EXPECT_ERROR(
      Reranker::load(folder.path(), load_with(false)),
      "bad_file",
      "'classifier.weight' of shape [1, 64] is missing");
}

}  // namespace
}  // namespace mlxx::embed
