#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "mlxx/eval/interval.h"
#include "mlxx/eval/scored_rows.h"
#include "mlxx/generate/pipeline.h"

namespace mlxx::eval {

// A question whose answer is the continuation that the model finds likeliest.
struct Question {
  std::string task;  // "" if the file names none
  std::string context;
  std::vector<std::string> continuations;
  int gold = 0;  // which one is right
};

// JSON lines in the shape of lm-eval's requests and documents: {"context": ..,
// "continuations": [.., ..], "gold": 0}, or "query" and "choices"; optional
// "task". A continuation follows its context without anything between them.
// not_found, bad_file naming file and line.
std::vector<Question> read_questions(const std::filesystem::path& file);

// Context and continuation as lm-eval splits them into tokens: white space at
// the context's end belongs to the continuation, whose tokens are what the
// whole has more than the context alone. Begins with the BOS if the model
// wants one. Of more than `max_tokens` the first ones are left out.
ScoredRow choice_row(
    const generate::Pipeline& pipeline,
    const std::string& context,
    const std::string& continuation,
    int max_tokens);

// The same for a chat: the context is what the user says, the continuation how
// the answer begins.
ScoredRow chat_choice_row(
    const generate::Pipeline& pipeline,
    const std::string& context,
    const std::string& continuation,
    int max_tokens);

struct ChoiceOptions {
  int max_tokens = 0;          // of a row
  bool chat_template = false;  // chat_choice_row() in place of choice_row()
};

struct TaskReport {
  int64_t questions = 0;
  Interval accuracy;  // by the sum of the tokens' log-probabilities
  // by that sum for each character of the continuation, without white space
  // at its beginning
  Interval normalized_accuracy;
};

struct ChoiceReport {
  TaskReport all;
  std::map<std::string, TaskReport> tasks;  // if the file names them
  // Of each question, the sum for each continuation.
  std::vector<std::vector<double>> logprobs;
};

ChoiceReport multiple_choice(
    const Subject& subject,
    const generate::Pipeline& pipeline,
    const std::vector<Question>& questions,
    const ChoiceOptions& choice,
    const ScoreOptions& options);

}  // namespace mlxx::eval
