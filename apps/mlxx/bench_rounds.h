#pragma once

#include <optional>
#include <vector>

#include "mlxx/models/model.h"

namespace mlxx::apps {

// What one round of `mlxx bench` measures, in llama-bench's terms.
struct BenchPlan {
  int prompt = 512;  // tokens; 0: none
  int decode = 128;  // tokens per sequence; 0: none
  int depth = 0;     // tokens of context before either
  int parallel = 1;  // sequences decoded together
  int prefill_step_size = 2048;
};

struct BenchRound {
  std::optional<double> prompt_rate;  // tokens per second
  std::optional<double> decode_rate;  // of all sequences together
  std::vector<double> step_seconds;   // decode
};

// Random tokens as a prompt, then greedy decoding, each with caches of its own.
BenchRound run_round(const models::Model& model, const BenchPlan& plan);

std::vector<int32_t> random_tokens(int count, int vocabulary);

}  // namespace mlxx::apps
