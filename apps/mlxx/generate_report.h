#pragma once

#include <string>

#include "mlxx/base/json.h"
#include "mlxx/generate/generate.h"

namespace mlxx::apps {

// Seconds, the phases in the order in which they end.
struct AnswerTimings {
  double start = 0;        // process start to the parsed command line
  double tokenizer = 0;    // while the weights load
  double weights = 0;      // building the model and reading its weights
  double load = 0;         // all of finding and loading the model
  double prompt = 0;       // template and tokenising
  double first_token = 0;  // from process start to the first token
  double total = 0;        // from process start to the last token
};

// The one line for stderr: tokens, tokens per second, peak memory.
std::string answer_summary(
    const generate::GenerateResult& result,
    int max_tokens);

// The object that --json prints.
OrderedJson answer_json(
    const std::string& model,
    const generate::GenerateResult& result,
    const AnswerTimings& timings);

// "1.2 GB", in powers of ten as file sizes are given.
std::string format_bytes(uint64_t bytes);

}  // namespace mlxx::apps
