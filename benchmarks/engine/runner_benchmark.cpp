// runner_benchmark MODEL [STEPS]: milliseconds of a decode step of 1, 8 and 32
// rows, for rows that choose in different ways, and of it on the calling
// thread.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "mlxx/base/error.h"
#include "mlxx/engine/model_runner.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/models/model.h"

namespace mlxx::engine {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

struct Kind {
  const char* name;
  generate::SamplingOptions sampling;
  std::optional<int> top_logprobs;
  bool masked = false;
};

std::vector<Kind> kinds() {
  std::vector<Kind> all{{"greedy", {}, {}}};
  generate::SamplingOptions sampling;
  sampling.temperature = 0.8f;
  all.push_back({"temperature", sampling, {}});
  sampling.top_p = 0.95f;
  all.push_back({"top_p", sampling, {}});
  sampling.top_k = 40;
  sampling.min_p = 0.02f;
  sampling.repetition_penalty = 1.1f;
  all.push_back({"many", sampling, {}});
  all.push_back({"greedy+5 logprobs", {}, 5});
  all.push_back({"greedy+mask", {}, {}, true});
  return all;
}

void measure(Runner& runner, const Kind& kind, int count, int steps) {
  std::vector<std::unique_ptr<Row>> rows;
  std::vector<Row*> pointers;
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> prompt{i + 2, 5, 9, 300 + i};
    RowSettings settings;
    settings.sampling = kind.sampling;
    settings.seed = i;
    settings.top_logprobs = kind.top_logprobs;
    rows.push_back(runner.open(prompt, settings).row);
    runner.prefill(*rows.back(), 512);
    pointers.push_back(rows.back().get());
  }
  std::vector<TokenMask> masks;
  if (kind.masked) {
    auto words = static_cast<size_t>((runner.vocab_size() + 31) / 32);
    masks.assign(rows.size(), TokenMask(words, 0x7fffffffu));
  }
  std::unique_ptr<Step> before;
  Clock::duration host{};
  auto start = Clock::now();
  constexpr int kWarm = 3;
  for (int i = 0; i < steps + kWarm; ++i) {
    if (i == kWarm) {
      start = Clock::now();
      host = {};
    }
    auto at = Clock::now();
    auto now = runner.begin(pointers);
    runner.choose(*now, masks);
    host += Clock::now() - at;
    if (before) {
      runner.read(*before);
    }
    before = std::move(now);
  }
  runner.read(*before);
  double each = milliseconds(Clock::now() - start) / steps;
  fmt::print(
      "{:2} rows {:20} {:7.2f} ms a step {:7.0f} tok/s; host {:.2f} ms\n",
      count,
      kind.name,
      each,
      count * 1e3 / each,
      milliseconds(host) / steps);
  for (auto& row : rows) {
    runner.close(std::move(row), {});
  }
}

void run(const char* name, int steps) {
  auto checkpoint = hub::open_checkpoint(hub::resolve_model(name));
  auto selection = kernels::select_from_environment();
  models::LoadOptions options;
  options.kernels = selection;
  auto model = models::load_model(*checkpoint, options);
  auto text = std::make_shared<ModelText>();
  text->vocab_size = model->summary().vocab_size;
  ModelRunnerOptions runner_options;
  runner_options.kernels = selection;
  ModelRunner runner(model, text, runner_options);
  for (int count : {1, 8, 32}) {
    for (const Kind& kind : kinds()) {
      measure(runner, kind, count, steps);
    }
  }
}

}  // namespace
}  // namespace mlxx::engine

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "runner_benchmark MODEL [STEPS]\n");
    return 2;
  }
  try {
    mlxx::engine::run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 30);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
