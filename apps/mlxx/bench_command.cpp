#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/bench_profile.h"
#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/memory_bandwidth.h"
#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/models/model.h"

namespace mlxx::apps {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  std::string model = hub::kDefaultModel;
  int prompt = 512;
  int decode = 128;
  int repeats = 5;
  int prefill_step_size = 2048;
  bool profile = false;
  bool json = false;
};

// Steps that --profile takes the mean of, at most.
constexpr int kProfiledSteps = 16;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / values.size();
}

double deviation(const std::vector<double>& values) {
  if (values.size() < 2) {
    return 0;
  }
  double middle = mean(values);
  double sum = 0;
  for (double v : values) {
    sum += (v - middle) * (v - middle);
  }
  return std::sqrt(sum / (values.size() - 1));
}

// Nearest rank: the value that `share` of the sorted values do not exceed.
double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  size_t rank = static_cast<size_t>(std::ceil(share * values.size()));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

// Bytes of weights that one decoded token reads: everything but an embedding
// that has a separate head (one row of it is read).
uint64_t bytes_per_token(const models::Model& model) {
  uint64_t bytes = 0;
  uint64_t embedding = 0;
  bool has_head = false;
  model.visit([&](const std::string& name, const Parameter& parameter) {
    bytes += parameter.nbytes();
    has_head = has_head || name.starts_with("lm_head.");
    if (name.find("embed_tokens.") != std::string::npos) {
      embedding += parameter.nbytes();
    }
  });
  return has_head ? bytes - embedding : bytes;
}

struct BenchResult {
  std::vector<double> prompt_rates;     // tokens per second, per repeat
  std::vector<double> decode_rates;     // tokens per second, per repeat
  std::vector<double> first_decode_ms;  // per repeat
  std::vector<double> decode_ms;        // every step of every repeat
};

void run_prompt(
    const models::Model& model,
    const std::vector<int32_t>& tokens,
    int step_size,
    cache::CacheList& cache) {
  for (size_t done = 0; done < tokens.size();) {
    int n = static_cast<int>(std::min<size_t>(step_size, tokens.size() - done));
    mx::array ids(tokens.data() + done, {1, n}, mx::int32);
    mx::eval(with_cache_state(model.forward_last(ids, cache), cache));
    done += n;
    clear_cache();
  }
}

// Greedy, each token fed back.
std::vector<double> run_decode(
    const models::Model& model,
    int count,
    int32_t first,
    cache::CacheList& cache) {
  std::vector<double> times;
  int32_t token = first;
  for (int i = 0; i < count; ++i) {
    auto start = Clock::now();
    mx::array ids(&token, {1, 1}, mx::int32);
    mx::array next = mx::argmax(model.forward_last(ids, cache), -1);
    mx::eval(with_cache_state(next, cache));
    token = static_cast<int32_t>(next.item<uint32_t>());
    times.push_back(seconds_since(start));
  }
  return times;
}

std::vector<int32_t> random_tokens(int count, int vocabulary) {
  std::mt19937 random(1);
  std::vector<int32_t> tokens(count);
  for (auto& token : tokens) {
    token = static_cast<int32_t>(random() % vocabulary);
  }
  return tokens;
}

BenchResult measure(const models::Model& model, const BenchOptions& options) {
  int vocabulary = model.summary().vocab_size;
  auto tokens = random_tokens(options.prompt, vocabulary);
  BenchResult result;
  // The first round warms caches and threads up and is thrown away.
  for (int round = -1; round < options.repeats; ++round) {
    auto cache = model.make_cache({});
    if (options.prompt > 0) {
      auto start = Clock::now();
      run_prompt(model, tokens, options.prefill_step_size, cache);
      if (round >= 0) {
        result.prompt_rates.push_back(options.prompt / seconds_since(start));
      }
    }
    if (options.decode > 0) {
      int count = round >= 0 ? options.decode : std::min(options.decode, 4);
      auto times = run_decode(model, count, 1 % vocabulary, cache);
      if (round >= 0) {
        double total = std::accumulate(times.begin(), times.end(), 0.0);
        result.decode_rates.push_back(times.size() / total);
        result.first_decode_ms.push_back(times[0] * 1e3);
        for (double seconds : times) {
          result.decode_ms.push_back(seconds * 1e3);
        }
      }
    }
  }
  return result;
}

int run(const BenchOptions& options) {
  if (options.prompt == 0 && options.decode == 0) {
    fail(
        ErrorKind::invalid_request,
        "bench",
        "nothing to measure: -p and -n are both 0");
  }
  auto start = Clock::now();
  auto checkpoint = hub::open_checkpoint(hub::resolve_model(options.model));
  auto model = models::load_model(*checkpoint);
  double load_seconds = seconds_since(start);
  auto summary = model->summary();
  double peak_bandwidth = measure_memory_bandwidth();
  reset_peak_memory();
  BenchResult result = measure(*model, options);

  Json report = {
      {"model", options.model},
      {"model_type", summary.model_type},
      {"parameters", summary.parameters},
      {"weight_bytes", summary.weight_bytes},
      {"backend", std::string(to_string(backend()))},
      {"mlx_version", mx::version()},
      {"prompt_tokens", options.prompt},
      {"decode_tokens", options.decode},
      {"repeats", options.repeats},
      {"load_seconds", load_seconds},
      {"peak_gb_s", peak_bandwidth / 1e9},
      {"peak_memory_bytes", memory_use().peak},
  };
  std::string lines = fmt::format(
      "{} ({}, {:.1f} M parameters, {:.1f} MB of weights) on {}\n",
      options.model,
      summary.model_type,
      summary.parameters / 1e6,
      summary.weight_bytes / 1e6,
      to_string(backend()));
  if (options.prompt > 0) {
    report["prompt_tok_s"] = mean(result.prompt_rates);
    report["prompt_tok_s_stddev"] = deviation(result.prompt_rates);
    lines += fmt::format(
        "prompt {:>5}  {:9.2f} ± {:.2f} tok/s\n",
        options.prompt,
        mean(result.prompt_rates),
        deviation(result.prompt_rates));
  }
  if (options.decode > 0) {
    double rate = mean(result.decode_rates);
    double bytes_per_second = rate * bytes_per_token(*model);
    double percent =
        peak_bandwidth > 0 ? 100 * bytes_per_second / peak_bandwidth : 0;
    report["decode_tok_s"] = rate;
    report["decode_tok_s_stddev"] = deviation(result.decode_rates);
    report["gb_s"] = bytes_per_second / 1e9;
    report["percent_of_peak"] = percent;
    report["first_decode_ms"] = mean(result.first_decode_ms);
    report["decode_p50_ms"] = percentile(result.decode_ms, 0.50);
    report["decode_p99_ms"] = percentile(result.decode_ms, 0.99);
    lines += fmt::format(
        "decode {:>5}  {:9.2f} ± {:.2f} tok/s  {:.1f} GB/s of weights, "
        "{:.0f} % of the {:.1f} GB/s that memory gives\n"
        "decode step   first {:.2f} ms, median {:.2f} ms, 99 % within {:.2f} "
        "ms\n",
        options.decode,
        rate,
        deviation(result.decode_rates),
        bytes_per_second / 1e9,
        percent,
        peak_bandwidth / 1e9,
        mean(result.first_decode_ms),
        percentile(result.decode_ms, 0.50),
        percentile(result.decode_ms, 0.99));
  }
  if (options.profile) {
    int chunk = std::min(options.prompt, options.prefill_step_size);
    BenchProfile profile = profile_model(
        *model,
        random_tokens(chunk, summary.vocab_size),
        std::min(options.decode, kProfiledSteps));
    report["profile"] = bench_profile_json(profile);
    lines += format_bench_profile(profile);
  }
  print(options.json ? report.dump() + "\n" : lines);
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* verb =
      app.add_subcommand("bench", "Measure prompt and decode speed");
  verb->add_option("-m,--model", options->model, "Model")
      ->capture_default_str();
  verb->add_option("-p,--n-prompt", options->prompt, "Prompt tokens; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  verb->add_option("-n,--n-gen", options->decode, "Decoded tokens; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  verb->add_option("-r,--repetitions", options->repeats, "Measured rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  verb->add_option(
          "--prefill-step-size",
          options->prefill_step_size,
          "Prompt tokens per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  verb->add_flag(
      "--profile",
      options->profile,
      "Also time each kind of operation, for one step of the prompt and for "
      "decoding");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(
      "Example: mlxx bench -p 512 -n 128 -r 5\n"
      "Decoding follows the prompt, so it sees that many tokens of context.");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
