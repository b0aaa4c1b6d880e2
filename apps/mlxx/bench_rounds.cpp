#include "apps/mlxx/bench_rounds.h"

#include <chrono>
#include <numeric>
#include <random>

#include "apps/mlxx/bench_profile.h"
#include "mlxx/core/memory.h"
#include "mlxx/generate/sampler.h"

namespace mlxx::apps {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void run_prompt(
    const models::Model& model,
    const std::vector<int32_t>& tokens,
    const BenchPlan& plan,
    int rows,
    cache::CacheList& cache) {
  for (size_t done = 0; done < tokens.size();) {
    int n = static_cast<int>(
        std::min<size_t>(plan.prefill_step_size, tokens.size() - done));
    mx::array ids(tokens.data() + done, {1, n}, mx::int32);
    mx::array logits = model.forward_last(mx::repeat(ids, rows, 0), cache);
    mx::eval(with_cache_state(logits, cache));
    done += n;
    clear_cache();
  }
}

// Greedy, each token fed back, as generation does it: a step is begun before
// the token of the one before it is read.
std::vector<double> run_decode(
    const models::Model& model,
    const BenchPlan& plan,
    cache::CacheList& cache) {
  const generate::Sampler sampler{generate::SamplingOptions()};
  const std::vector<generate::SampleKey> keys(plan.parallel, {0, 0});
  auto begin = [&](const mx::array& tokens) {
    auto chosen = sampler.sample(
        model.forward_last(mx::reshape(tokens, {plan.parallel, 1}), cache),
        keys);
    mx::async_eval(chosen.tokens);
    return chosen.tokens;
  };
  std::vector<double> times;
  if (plan.decode == 0) {
    return times;
  }
  int vocabulary = model.summary().vocab_size;
  std::vector<int32_t> tokens(plan.parallel);
  for (int row = 0; row < plan.parallel; ++row) {
    tokens[row] = (row + 1) % vocabulary;
  }
  auto start = Clock::now();
  mx::array next = begin(mx::array(tokens.data(), {plan.parallel}, mx::int32));
  for (int i = 0; i < plan.decode; ++i) {
    mx::array newest = next;
    if (i + 1 < plan.decode) {
      next = begin(newest);
    }
    mx::eval(newest);
    tokens.assign(
        newest.data<int32_t>(),
        newest.data<int32_t>() + plan.parallel);
    times.push_back(seconds_since(start));
    start = Clock::now();
  }
  return times;
}

}  // namespace

std::vector<int32_t> random_tokens(int count, int vocabulary) {
  std::mt19937 random(1);
  std::vector<int32_t> tokens(count);
  for (auto& token : tokens) {
    token = static_cast<int32_t>(random() % vocabulary);
  }
  return tokens;
}

BenchRound run_round(const models::Model& model, const BenchPlan& plan) {
  int vocabulary = model.summary().vocab_size;
  auto context = random_tokens(plan.depth, vocabulary);
  BenchRound round;
  if (plan.prompt > 0) {
    auto cache = model.make_cache({});
    run_prompt(model, context, plan, 1, cache);
    auto tokens = random_tokens(plan.prompt, vocabulary);
    auto start = Clock::now();
    run_prompt(model, tokens, plan, 1, cache);
    round.prompt_rate = plan.prompt / seconds_since(start);
  }
  if (plan.decode > 0) {
    auto cache = model.make_cache({});
    run_prompt(model, context, plan, plan.parallel, cache);
    round.step_seconds = run_decode(model, plan, cache);
    double total = std::accumulate(
        round.step_seconds.begin(),
        round.step_seconds.end(),
        0.0);
    round.decode_rate = plan.parallel * plan.decode / total;
  }
  return round;
}

}  // namespace mlxx::apps
