#include "mlxx/eval/multiple_choice.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/core/temporary_folder.h"
#include "tests/eval/tiny_pipeline.h"

namespace mlxx::eval {
namespace {

std::string text_of(const generate::Pipeline& pipeline, const ScoredRow& row) {
  std::string out;
  for (size_t t = 0; t < row.tokens.size(); ++t) {
    bool begins = row.targets[t] && !row.targets[t - 1];
    out += (begins ? "|" : "") + pipeline.tokenizer->token_bytes(row.tokens[t]);
  }
  return out;
}

TEST(ChoiceRow, SplitsContextAndContinuationAsLmEval) {
  auto pipeline = tiny_pipeline();
  auto of = [&](const char* context, const char* continuation) {
    return text_of(pipeline, choice_row(pipeline, context, continuation, 64));
  };
  EXPECT_EQ(of("The answer is", " yes"), "The answer is| yes");
  // White space at the context's end goes over.
  EXPECT_EQ(of("The answer is ", "yes"), "The answer is| yes");
  // "h" and "i" are one token together.
  EXPECT_EQ(of("oh", "i!"), "ohi|!");
  EXPECT_EQ(of("", "yes"), "<s>|yes");
  EXPECT_EQ(
      text_of(pipeline, choice_row(pipeline, "The answer is", " yes", 8)),
      "r is| yes");
  EXPECT_EQ(
      text_of(
          tiny_pipeline(true),
          choice_row(tiny_pipeline(true), "a", "b", 8)),
      "<s>a|b");
}

TEST(ChoiceRow, OfAChatIsTheBeginningOfItsAnswer) {
  auto pipeline = tiny_pipeline();
  EXPECT_THROW(chat_choice_row(pipeline, "a", "b", 64), Error);
  pipeline.chat_template = text::ChatTemplate::compile(
      "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if "
      "add_generation_prompt %}A:{% endif %}",
      "",
      "");
  EXPECT_EQ(
      text_of(pipeline, chat_choice_row(pipeline, "</s>?", "yes", 64)),
      "[</s>?]A:|yes");
}

TEST(ReadQuestions, TakesBothShapes) {
  TemporaryFolder folder;
  auto questions = read_questions(folder.write(
      "q.jsonl",
      "{\"context\": \"1+1=\", \"continuations\": [\"2\", \"3\"], \"gold\": "
      "0}\n"
      "\n"
      "{\"query\": \"2+2=\", \"choices\": [\"2\", \"3\", \"4\"], \"gold\": 2, "
      "\"task\": \"sums\", \"id\": 7}\n"));
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].context, "1+1=");
  EXPECT_EQ(questions[1].continuations.size(), 3u);
  EXPECT_EQ(questions[1].gold, 2);
  EXPECT_EQ(questions[1].task, "sums");
}

TEST(ReadQuestions, NamesTheLineThatIsWrong) {
  TemporaryFolder folder;
  for (const char* line :
       {"{\"context\": \"a\", \"continuations\": [\"b\"], \"gold\": 0}",
        "{\"context\": \"a\", \"continuations\": [\"b\", \"\"], \"gold\": 0}",
        "{\"context\": \"a\", \"continuations\": [\"b\", \"c\"], \"gold\": 2}",
        "{\"context\": \"a\", \"continuations\": [\"b\", \"c\"]}",
        "{\"continuations\": [\"b\", \"c\"], \"gold\": 0}",
        "{\"context\": 1, \"continuations\": [\"b\", \"c\"], \"gold\": 0}",
        "[]",
        "{"}) {
    try {
      read_questions(folder.write(
          "q.jsonl",
          std::string("{\"context\": \"a\", \"continuations\": [\"b\", "
                      "\"c\"], \"gold\": 0}\n") +
              line));
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_file);
      EXPECT_NE(
          std::string(error.what()).find("q.jsonl: line 2]"),
          std::string::npos)
          << error.what();
    }
  }
}

TEST(MultipleChoice, FindsTheContinuationThatTheModelLikesBest) {
  auto pipeline = tiny_pipeline();
  std::vector<Question> questions;
  for (const char* context : {"abc", "Once upon a time", "q", "1 + 1 ="}) {
    questions.push_back(
        {.task = questions.size() < 2 ? "first" : "second",
         .context = context,
         .continuations = {" x", " a longer one", " y!", "zz"},
         .gold = 1});
  }
  Subject subject{*pipeline.model};
  auto alone =
      multiple_choice(subject, pipeline, questions, {64}, {.batch_size = 1});
  auto batched =
      multiple_choice(subject, pipeline, questions, {64}, {.batch_size = 7});
  EXPECT_EQ(alone.logprobs, batched.logprobs);
  // The gold answers moved to where the sums are largest, and per character.
  std::vector<Question> plain = questions;
  std::vector<Question> normalized = questions;
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto& sums = alone.logprobs[i];
    std::vector<double> each{sums[0], sums[1] / 12, sums[2] / 2, sums[3] / 2};
    plain[i].gold = static_cast<int>(
        std::max_element(sums.begin(), sums.end()) - sums.begin());
    normalized[i].gold = static_cast<int>(
        std::max_element(each.begin(), each.end()) - each.begin());
  }
  auto report = multiple_choice(subject, pipeline, plain, {64}, {});
  EXPECT_EQ(report.all.accuracy.mean, 1);
  EXPECT_EQ(report.all.questions, 4);
  EXPECT_LT(report.all.normalized_accuracy.mean, 1);
  EXPECT_EQ(report.tasks.size(), 2u);
  EXPECT_EQ(report.tasks.at("first").questions, 2);
  report = multiple_choice(subject, pipeline, normalized, {64}, {});
  EXPECT_EQ(report.all.normalized_accuracy.mean, 1);
}

}  // namespace
}  // namespace mlxx::eval
