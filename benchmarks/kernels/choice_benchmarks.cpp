// Choosing tokens for the rows of a batch over a vocabulary of 49,152.
#include <fmt/format.h>

#include <vector>

#include "benchmarks/kernels/workbench.h"
#include "mlxx/core/mlx.h"
#include "mlxx/kernels/token_choice/token_choice.h"

namespace mlxx::benchmarks {
namespace {

using namespace kernels;

constexpr int kVocabulary = 49152;

struct Kind {
  const char* name;
  TokenChoice choice;
  float spread;  // of the logits: 2.5 as in the middle of a text, 1 flat
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  TokenChoice choice;
  all.push_back({"greedy", choice, 2.5f});
  choice.top_logprobs = 5;
  all.push_back({"greedy, 5 logprobs", choice, 2.5f});
  choice.top_logprobs.reset();
  choice.temperature = 0.8f;
  all.push_back({"temperature", choice, 2.5f});
  choice.top_p = 0.95f;
  all.push_back({"top_p", choice, 2.5f});
  all.push_back({"top_p, flat", choice, 1});
  choice.top_p = 0;
  choice.top_k = 40;
  all.push_back({"top_k", choice, 2.5f});
  choice.top_k = 0;
  choice.min_p = 0.05f;
  all.push_back({"min_p", choice, 2.5f});
  return all;
}

void register_kind(const Workbench& bench, const Kind& kind, int rows) {
  auto run = [&bench, kind, rows](benchmark::State& state) {
    mx::array logits = mx::multiply(
        mx::random::normal(
            {rows, kVocabulary},
            mx::float32,
            mx::random::key(1)),
        mx::array(kind.spread));
    mx::array fed = mx::zeros({rows}, mx::int32);
    mx::eval(logits, fed);
    // Read once; how much is computed depends on the numbers.
    double bytes = 4.0 * rows * kVocabulary;
    Work work{bytes, bytes / 4, bench.peaks.float_operations};
    measure(state, bench, work, [&](int64_t iteration) {
      std::vector<TokenChoice> choices(static_cast<size_t>(rows), kind.choice);
      for (auto& choice : choices) {
        choice.key = {
            static_cast<uint32_t>(iteration),
            static_cast<uint32_t>(&choice - choices.data())};
      }
      auto chosen =
          choose_tokens_cpu(logits, fed, std::move(choices), bench.selection);
      mx::eval(chosen.tokens);
    });
  };
  benchmark::RegisterBenchmark(
      fmt::format("choice/{}/rows:{}", kind.name, rows).c_str(),
      run)
      ->UseRealTime()
      ->MinTime(0.1);
}

}  // namespace

void register_choices(const Workbench& bench) {
  for (int rows : {1, 32}) {
    for (const Kind& kind : kinds()) {
      register_kind(bench, kind, rows);
    }
  }
}

}  // namespace mlxx::benchmarks
