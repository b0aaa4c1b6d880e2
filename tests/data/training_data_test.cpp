#include "mlxx/data/training_data.h"

#include <algorithm>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mlxx/base/log.h"
#include "tests/data/small_data.h"

namespace mlxx::data {
namespace {

using Texts = std::vector<std::string>;

std::string numbered_texts(int count) {
  std::string content;
  for (int i = 0; i < count; ++i) {
    content += fmt::format(
        "{{\"text\": \"{} {}\"}}\n",
        i,
        std::string(static_cast<size_t>(i * 7 % 50), 'x'));
  }
  return content;
}

bool equal(const Batch& a, const Batch& b) {
  return a.rows == b.rows && a.length == b.length && a.tokens == b.tokens &&
      a.targets == b.targets && a.samples == b.samples &&
      a.segments == b.segments && a.pairs == b.pairs;
}

TEST(TrainingData, OfOneLineWorksWithAnyBatchSize) {
  for (bool pack : {false, true}) {
    SmallData made;
    made.options.batch_size = 4;
    made.options.shuffle = true;
    made.options.pack = pack;
    auto data = made.open("{\"text\": \"abc\"}");
    EXPECT_EQ(data->samples(), 1);
    EXPECT_EQ(data->batches_per_epoch(), 1);
    Batch batch = data->batch(1'000'000'000'000);
    EXPECT_EQ(batch.rows, 1);
    EXPECT_EQ(made.targets(batch), (Texts{"bc</s>"}));
    EXPECT_EQ(data->largest_batch(), 0);
  }
}

TEST(TrainingData, UsesTheLastSamplesThoughTheyFillNoBatch) {
  SmallData made;
  made.options.batch_size = 4;
  made.options.shuffle = true;
  auto data = made.open(numbered_texts(10));
  EXPECT_EQ(data->batches_per_epoch(), 3);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::multiset<int64_t> seen;
    for (int64_t i = 0; i < 3; ++i) {
      Batch batch = data->batch(3 * epoch + i);
      seen.insert(batch.samples.begin(), batch.samples.end());
      EXPECT_EQ(batch.samples.size(), static_cast<size_t>(batch.rows));
    }
    EXPECT_EQ(seen, (std::multiset<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
}

TEST(TrainingData, GivesTheSameBatchOfANumberWhateverWasAskedBefore) {
  for (bool pack : {false, true}) {
    SmallData made;
    made.options.batch_size = 3;
    made.options.shuffle = true;
    made.options.seed = 11;
    made.options.max_length = 64;
    made.options.pack = pack;
    auto data = made.open(numbered_texts(50));
    std::vector<Batch> batches;
    for (int64_t i = 0; i < 40; ++i) {
      batches.push_back(data->batch(i));
    }
    // Backwards, in another object, and from several threads at once.
    auto other = made.open(numbered_texts(50));
    std::vector<std::jthread> threads;
    std::atomic<int> wrong = 0;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int64_t i = 39 - thread; i >= 0; i -= 1 + thread) {
          bool same = equal(other->batch(i), batches[static_cast<size_t>(i)]);
          wrong += same ? 0 : 1;
        }
      });
    }
    threads.clear();
    EXPECT_EQ(wrong, 0);
  }
}

TEST(TrainingData, NamesTheLargestBatch) {
  SmallData made;
  made.options.batch_size = 4;
  made.options.shuffle = true;
  auto data = made.open(numbered_texts(30));
  int largest = 0;
  for (int64_t i = 0; i < data->batches_per_epoch(); ++i) {
    Batch batch = data->batch(i);
    largest = std::max(largest, batch.rows * batch.length);
  }
  Batch batch = data->batch(data->largest_batch());
  EXPECT_EQ(batch.rows * batch.length, largest);
}

TEST(TrainingData, CountsWhatAFileHolds) {
  SmallData made;
  made.options.max_length = 6;
  std::vector<std::string> log;
  set_log_sink(
      [&](LogLevel, std::string_view line) { log.emplace_back(line); });
  auto data = made.open(
      "{\"text\": \"abc\"}\n\n{\"text\": \"\"}\n{\"text\": \"abcdefgh\"}\n");
  set_log_sink({});
  DataSummary summary = data->summary();
  EXPECT_EQ(summary.kind, "texts");
  EXPECT_EQ(summary.lines, 3);
  EXPECT_EQ(summary.samples, 2);
  EXPECT_EQ(summary.skipped, 1);
  EXPECT_EQ(summary.cut, 1);
  EXPECT_EQ(summary.tokens, 4 + 6);
  EXPECT_EQ(summary.target_tokens, 3 + 5);
  EXPECT_EQ(summary.longest, 6);
  EXPECT_TRUE(summary.first_skipped.ends_with("train.jsonl: line 3"));
  EXPECT_TRUE(data->place(1).ends_with("train.jsonl: line 4"));
  ASSERT_EQ(log.size(), 2u);
  EXPECT_NE(log[0].find("1 of 3 lines have no token to predict"), log[0].npos);
  EXPECT_NE(log[1].find("1 of 3 lines are longer than 6"), log[1].npos);
}

TEST(TrainingData, HasOneBosAndOneEos) {
  SmallData made;
  made.tokenizer = generate::tiny_tokenizer({"hi"}, /*automatic_bos=*/true);
  auto text_of = [&](std::string_view line) {
    Batch batch = made.open(line)->batch(0);
    std::string text = made.text(batch.tokens);
    return text.substr(0, text.find('\0'));
  };
  EXPECT_EQ(text_of(R"({"text": "ab"})"), "<s>ab</s>");
  EXPECT_EQ(text_of(R"({"text": "<s>ab</s>"})"), "<s>ab</s>");
  made.chat_template = nullptr;
  EXPECT_EQ(text_of(R"({"prompt": "<s>a", "completion": "b"})"), "<s>ab</s>");
  made.chat_template = text::ChatTemplate::compile(
      "{{ bos_token }}{% for m in messages %}{{ bos_token }}{{ m.content }}"
      "{% endfor %}",
      "<s>",
      "</s>");
  EXPECT_EQ(
      text_of(R"({"messages": [{"role": "user", "content": "ab"}]})"),
      "<s>ab");
}

TEST(TrainingData, NamesTheLineThatIsWrong) {
  SmallData made;
  std::string good = "{\"text\": \"abc\"}\n";
  std::string six = good + good + good + good + good + good;
  const std::pair<std::string, std::string> cases[] = {
      {six + "{\"text\": \"abc\"", "[train.jsonl: line 7] not valid JSON"},
      {six + "{\"text\": 5}",
       "[train.jsonl: line 7] \"text\" must be a text, is number"},
      {six + "\n\r\n[1]\n" + good,
       "[train.jsonl: line 9] must be a JSON object, is array"},
      {six + "{\"instruction\": \"a\", \"output\": \"b\"}",
       "[train.jsonl: line 7] must have \"messages\", \"prompt\" and "
       "\"completion\", \"text\", or \"prompt\", \"chosen\" and "
       "\"rejected\"; has \"instruction\", \"output\""},
      {six + "{}", "has nothing"},
      {six + "{\"text\": \"a\", \"text\": \"b\"}",
       "[train.jsonl: line 7] duplicate key 'text'"},
      {six + "{\"text\": \"\xFF\"}", "[train.jsonl: line 7] not valid JSON"},
      {six + "{\"prompt\": \"a\", \"completion\": \"b\"}",
       "[train.jsonl: line 7] is of completions, the first line of texts: a "
       "file must be all of one kind"},
      {six + "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
       "[train.jsonl: line 7] holds two answers to choose between"},
      {"{\"messages\": []}",
       "[train.jsonl: line 1] \"messages\" is an empty list"},
      {"{\"messages\": [{\"content\": \"a\"}]}",
       "[train.jsonl: line 1] a message of \"messages\" is no object with a "
       "\"role\""},
      {"{\"messages\": [{\"role\": \"user\", \"content\": 7}]}",
       "[train.jsonl: line 1] \"content\" must be a text or a list of parts, "
       "is number"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": "
       "\"x\"}",
       "[train.jsonl: line 1] \"tools\" must be a list, is string"},
      {"{\"prompt\": \"a\", \"completion\": {}}",
       "[train.jsonl: line 1] \"completion\" must be a text or a list of "
       "messages, is object"},
      {"{\"text\": null}", "[train.jsonl: line 1] must have"},
  };
  for (const auto& [content, expected] : cases) {
    std::string error = made.error(content);
    EXPECT_NE(error.find(expected), std::string::npos) << error << "\n"
                                                       << expected;
  }
}

TEST(TrainingData, NamesTheFirstOfSeveralWrongLines) {
  SmallData made;
  std::string content = numbered_texts(1500);
  for (int line : {1400, 700, 701, 1200}) {
    size_t at = content.find(fmt::format("\"{} ", line - 1));
    content.replace(at, 1, "x");
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(made.error(content).starts_with("[train.jsonl: line 700] "))
        << made.error(content);
  }
}

TEST(TrainingData, OfAnotherKindThanTheMethodTakesIsAnError) {
  SmallData made;
  made.options.preference = true;
  EXPECT_EQ(
      made.error("{\"text\": \"a\"}"),
      "[train.jsonl: line 1] has no \"chosen\" and \"rejected\" answer, which "
      "this method learns from");
  EXPECT_EQ(
      made.error("{\"prompt\": \"a\", \"chosen\": \"a\"}"),
      "[train.jsonl: line 1] has no \"rejected\"");
}

TEST(TrainingData, SaysWhenMessagesNeedATemplate) {
  SmallData made(nullptr);
  std::string line =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
  EXPECT_NE(
      made.error(line).find("[train.jsonl: line 1] [chat_template] the model "
                            "has no chat template"),
      std::string::npos);
  made.options.chat_template_error = "line 3: no filter 'x'";
  EXPECT_NE(
      made.error(line).find("cannot be used: line 3: no filter 'x'"),
      std::string::npos);
  SmallData raising("{{ raise_exception('only the user speaks') }}");
  EXPECT_NE(
      raising.error(line).find(
          "[train.jsonl: line 1] [chat template] only the user speaks"),
      std::string::npos);
}

TEST(TrainingData, UsesTheTemplateForTools) {
  SmallData made("plain");
  auto with_tools = text::ChatTemplate::compile("{{ tools[0].name }}", "", "");
  made.options.tool_template = with_tools.get();
  Batch batch = made.open(
                        "{\"messages\": [{\"role\": \"user\", \"content\": "
                        "\"a\"}], \"tools\": [{\"name\": \"add\"}]}")
                    ->batch(0);
  EXPECT_TRUE(made.text(batch.tokens).starts_with("add"));
}

TEST(TrainingData, RefusesOptionsOutOfRange) {
  SmallData made;
  std::string line = "{\"text\": \"abc\"}";
  EXPECT_THROW(made.open(line)->batch(-1), Error);
  EXPECT_THROW(made.open(line)->place(1), Error);
  made.options.max_length = 1;
  EXPECT_EQ(made.error(line), "[max_length] is 1, must be 2 to 16777216");
  made.options.max_length = 1 << 24;
  made.options.batch_size = 1 << 16;
  EXPECT_NE(made.error(line).find("[batch_size]"), std::string::npos);
}

TEST(TrainingData, CanBeStoppedWhileAFileIsChecked) {
  SmallData made;
  int calls = 0;
  made.options.progress = [&](int64_t done, int64_t lines) {
    EXPECT_LE(done, lines);
    if (++calls == 3) {
      fail(ErrorKind::cancelled, "test", "stopped");
    }
  };
  EXPECT_EQ(made.error(numbered_texts(4000)), "[test] stopped");
}

}  // namespace
}  // namespace mlxx::data
