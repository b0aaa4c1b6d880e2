#include "mlxx/eval/multiple_choice.h"

#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/data/jsonl_file.h"
#include "mlxx/text/prompt_encoding.h"

namespace mlxx::eval {
namespace {

constexpr const char* kSpace = " \t\r\n\f\v";

// The first of two names that the object has.
const char* present(const JsonView& line, const char* a, const char* b) {
  return line.has(a) || !line.has(b) ? a : b;
}

Question read_question(const std::string& text, const std::string& place) {
  Json json = parse_json(text, place);
  JsonView line(json, place);
  Question question;
  question.task = line.string_or("task", "");
  question.context = line.string(present(line, "context", "query"));
  const char* list = present(line, "continuations", "choices");
  question.continuations = line.strings_or_empty(list);
  if (question.continuations.size() < 2) {
    line.fail_at(list, "must be a list of at least two texts");
  }
  for (const std::string& continuation : question.continuations) {
    if (continuation.empty()) {
      line.fail_at(list, "has an empty text");
    }
  }
  question.gold = static_cast<int>(line.integer(
      "gold",
      0,
      static_cast<int64_t>(question.continuations.size()) - 1));
  return question;
}

double characters(const std::string& continuation) {
  size_t begin = continuation.find_first_not_of(kSpace);
  std::string_view text = continuation;
  text.remove_prefix(std::min(begin, text.size()));
  auto count = std::ranges::count_if(text, [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  return static_cast<double>(std::max<std::ptrdiff_t>(count, 1));
}

void cut_beginning(ScoredRow& row, int max_tokens) {
  auto most = static_cast<size_t>(max_tokens);
  if (row.tokens.size() <= most) {
    return;
  }
  auto gone = static_cast<std::ptrdiff_t>(row.tokens.size() - most);
  row.tokens.erase(row.tokens.begin(), row.tokens.begin() + gone);
  row.targets.erase(row.targets.begin(), row.targets.begin() + gone);
  row.targets[0] = 0;
}

struct Hits {
  int64_t questions = 0;
  int64_t right = 0;
  int64_t right_normalized = 0;

  TaskReport report() const {
    return {
        .questions = questions,
        .accuracy = share(right, questions),
        .normalized_accuracy = share(right_normalized, questions)};
  }
};

int best(const std::vector<double>& scores) {
  return static_cast<int>(std::ranges::max_element(scores) - scores.begin());
}

}  // namespace

std::vector<Question> read_questions(const std::filesystem::path& file) {
  data::JsonlFile lines(file);
  std::vector<Question> out;
  for (int64_t i = 0; i < lines.size(); ++i) {
    out.push_back(read_question(lines.read(i), lines.place(i)));
  }
  return out;
}

ScoredRow choice_row(
    const generate::Pipeline& pipeline,
    const std::string& context,
    const std::string& continuation,
    int max_tokens) {
  text::PromptParts parts{.tokenizer = *pipeline.tokenizer};
  parts.bos_id = pipeline.bos_id;
  parts.add_bos = pipeline.add_bos;
  size_t last = context.find_last_not_of(kSpace);
  std::string begin =
      context.substr(0, last == std::string::npos ? 0 : last + 1);
  ScoredRow row;
  row.tokens = text::encode_raw_prompt(parts, context + continuation);
  size_t known = text::encode_raw_prompt(parts, begin).size();
  if (known == 0) {
    // Something has to predict the first token.
    auto first = pipeline.bos_id ? pipeline.bos_id : pipeline.eos_id;
    row.tokens.insert(row.tokens.begin(), first.value_or(0));
    known = 1;
  }
  // A tokenizer may merge all of it into the context's last token.
  known = std::min(known, std::max<size_t>(row.tokens.size(), 2) - 1);
  row.targets.assign(row.tokens.size(), 0);
  std::fill(
      row.targets.begin() + static_cast<std::ptrdiff_t>(known),
      row.targets.end(),
      uint8_t{1});
  cut_beginning(row, max_tokens);
  return row;
}

ScoredRow chat_choice_row(
    const generate::Pipeline& pipeline,
    const std::string& context,
    const std::string& continuation,
    int max_tokens) {
  OrderedJson messages =
      OrderedJson::array({OrderedJson{{"role", "user"}, {"content", context}}});
  ScoredRow row;
  row.tokens = generate::encode_chat_prompt(pipeline, messages, {});
  row.targets.assign(row.tokens.size(), 0);
  auto answer = pipeline.tokenizer->encode(continuation);
  row.tokens.insert(row.tokens.end(), answer.begin(), answer.end());
  row.targets.resize(row.tokens.size(), 1);
  cut_beginning(row, max_tokens);
  return row;
}

ChoiceReport multiple_choice(
    const Subject& subject,
    const generate::Pipeline& pipeline,
    const std::vector<Question>& questions,
    const ChoiceOptions& choice,
    const ScoreOptions& options) {
  auto row_for = choice.chat_template ? chat_choice_row : choice_row;
  std::vector<ScoredRow> rows;
  for (const Question& question : questions) {
    for (const std::string& continuation : question.continuations) {
      rows.push_back(
          row_for(pipeline, question.context, continuation, choice.max_tokens));
    }
  }
  auto logprobs = target_logprobs(subject, rows, options);
  ChoiceReport report;
  Hits all;
  std::map<std::string, Hits> tasks;
  size_t row = 0;
  for (const Question& question : questions) {
    std::vector<double> sums;
    std::vector<double> normalized;
    for (const std::string& continuation : question.continuations) {
      double sum = 0;
      for (float value : logprobs[row++]) {
        sum += static_cast<double>(value);
      }
      sums.push_back(sum);
      normalized.push_back(sum / characters(continuation));
    }
    for (Hits* hits : {&all, &tasks[question.task]}) {
      ++hits->questions;
      hits->right += best(sums) == question.gold ? 1 : 0;
      hits->right_normalized += best(normalized) == question.gold ? 1 : 0;
    }
    report.logprobs.push_back(std::move(sums));
  }
  report.all = all.report();
  tasks.erase("");
  for (const auto& [name, hits] : tasks) {
    report.tasks[name] = hits.report();
  }
  return report;
}

}  // namespace mlxx::eval
