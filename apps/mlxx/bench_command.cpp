#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/bench_peer.h"
#include "apps/mlxx/bench_profile.h"
#include "apps/mlxx/bench_rounds.h"
#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/kernel_options.h"
#include "mlxx/base/error.h"
#include "mlxx/base/staging_folder.h"
#include "mlxx/core/device.h"
#include "mlxx/core/memory.h"
#include "mlxx/core/memory_bandwidth.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/models/model.h"

namespace mlxx::apps {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  std::string model = hub::kDefaultModel;
  BenchPlan plan;
  int repeats = 5;
  std::optional<std::string> peer;
  KernelOptions kernels;
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

// How many of a layer's experts a token goes to; 0 if the config does not say.
int64_t experts_per_token(const Json& config) {
  JsonView top(config, "config.json");
  JsonView view = top.has("text_config") ? top.object("text_config") : top;
  for (const char* key : {"num_experts_per_tok", "top_k_experts"}) {
    if (view.has(key)) {
      return view.integer(key, 0, INT32_MAX);
    }
  }
  return 0;
}

// Bytes of weights that one step of `tokens` tokens reads: everything but an
// embedding that has a separate head (one row of it is read), and of a stack
// of experts those that the tokens go to, if all are chosen equally often.
double
bytes_per_step(const models::Model& model, const Json& config, int tokens) {
  auto chosen = static_cast<double>(experts_per_token(config));
  double bytes = 0;
  double embedding = 0;
  bool has_head = false;
  model.visit([&](const std::string& name, const Parameter& parameter) {
    auto size = static_cast<double>(parameter.nbytes());
    // Latent attention has a matrix for each head, all of which it reads.
    bool is_stack = parameter.kind() == Parameter::Kind::matrix &&
        parameter.shape().size() == 3 &&
        name.find(".self_attn.") == std::string::npos;
    if (is_stack && chosen > 0) {
      double missed = 1 - std::min(1.0, chosen / parameter.shape()[0]);
      size *= 1 - std::pow(missed, tokens);
    }
    bytes += size;
    has_head = has_head || name.starts_with("lm_head.");
    if (name.find("embed_tokens.") != std::string::npos) {
      embedding += size;
    }
  });
  return has_head ? bytes - embedding : bytes;
}

struct BenchResult {
  std::vector<double> prompt_rates;     // tokens per second, per round
  std::vector<double> decode_rates;     // tokens per second, per round
  std::vector<double> first_decode_ms;  // per round
  std::vector<double> decode_ms;        // every step of every round
  // Of the peer, per round, and ours by the peer's in the same round.
  std::vector<double> peer_prompt_rates;
  std::vector<double> peer_decode_rates;
};

BenchResult measure(
    const models::Model& model,
    const BenchOptions& options,
    const BenchPeer* peer) {
  BenchResult result;
  // The first round warms caches and threads up and is thrown away.
  BenchPlan warm_up = options.plan;
  warm_up.decode = std::min(warm_up.decode, 4);
  run_round(model, warm_up);
  for (int i = 0; i < options.repeats; ++i) {
    BenchRound round = run_round(model, options.plan);
    if (round.prompt_rate) {
      result.prompt_rates.push_back(*round.prompt_rate);
    }
    if (round.decode_rate) {
      result.decode_rates.push_back(*round.decode_rate);
      result.first_decode_ms.push_back(round.step_seconds[0] * 1e3);
      for (double seconds : round.step_seconds) {
        result.decode_ms.push_back(seconds * 1e3);
      }
    }
    if (peer) {
      BenchRound theirs = peer->measure(options.plan);
      if (theirs.prompt_rate) {
        result.peer_prompt_rates.push_back(*theirs.prompt_rate);
      }
      if (theirs.decode_rate) {
        result.peer_decode_rates.push_back(*theirs.decode_rate);
      }
    }
  }
  return result;
}

// What the peer reached in the same rounds: its rate, and ours by it as median,
// least and most.
std::string compare(
    const char* what,
    const std::string& peer,
    const std::vector<double>& ours,
    const std::vector<double>& theirs,
    Json& report) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    ratios.push_back(ours[i] / theirs[i]);
  }
  if (ratios.empty()) {
    return {};
  }
  double median = percentile(ratios, 0.5);
  double least = std::ranges::min(ratios);
  double most = std::ranges::max(ratios);
  report[what] = {
      {"tok_s", mean(theirs)},
      {"tok_s_stddev", deviation(theirs)},
      {"ratio", median},
      {"ratio_min", least},
      {"ratio_max", most}};
  return fmt::format(
      "{} {:>12}  {:9.2f} ± {:.2f} tok/s  ratio {:.2f} ({:.2f} to {:.2f})\n",
      peer,
      what,
      mean(theirs),
      deviation(theirs),
      median,
      least,
      most);
}

int run(const BenchOptions& options) {
  if (options.plan.prompt == 0 && options.plan.decode == 0) {
    fail(
        ErrorKind::invalid_request,
        "bench",
        "nothing to measure: -p and -n are both 0");
  }
  auto start = Clock::now();
  auto checkpoint = hub::open_checkpoint(hub::resolve_model(options.model));
  models::LoadOptions load_options;
  load_options.kernels = options.kernels.selection();
  auto model = models::load_model(*checkpoint, load_options);
  double load_seconds = seconds_since(start);
  auto summary = model->summary();
  double peak_bandwidth = measure_memory_bandwidth();
  reset_peak_memory();
  std::unique_ptr<BenchPeer> peer;
  std::optional<StagingFolder> scratch;
  if (options.peer) {
    scratch.emplace(std::filesystem::temp_directory_path());
    int threads = load_options.kernels->threads
        ? load_options.kernels->threads->size()
        : 0;
    peer =
        make_bench_peer(*options.peer, *checkpoint, threads, scratch->path());
  }
  BenchResult result = measure(*model, options, peer.get());

  Json report = {
      {"model", options.model},
      {"model_type", summary.model_type},
      {"parameters", summary.parameters},
      {"weight_bytes", summary.weight_bytes},
      {"backend", std::string(to_string(backend()))},
      {"mlx_version", mx::version()},
      {"prompt_tokens", options.plan.prompt},
      {"decode_tokens", options.plan.decode},
      {"depth", options.plan.depth},
      {"parallel", options.plan.parallel},
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
  if (options.plan.prompt > 0) {
    report["prompt_tok_s"] = mean(result.prompt_rates);
    report["prompt_tok_s_stddev"] = deviation(result.prompt_rates);
    lines += fmt::format(
        "prompt {:>5}  {:9.2f} ± {:.2f} tok/s\n",
        options.plan.prompt,
        mean(result.prompt_rates),
        deviation(result.prompt_rates));
  }
  if (options.plan.decode > 0) {
    double rate = mean(result.decode_rates);
    // The weights are read once for all sequences.
    double bytes_per_second = rate / options.plan.parallel *
        bytes_per_step(*model, checkpoint->config(), options.plan.parallel);
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
        options.plan.decode,
        rate,
        deviation(result.decode_rates),
        bytes_per_second / 1e9,
        percent,
        peak_bandwidth / 1e9,
        mean(result.first_decode_ms),
        percentile(result.decode_ms, 0.50),
        percentile(result.decode_ms, 0.99));
  }
  if (peer) {
    Json compared = {{"name", peer->name()}};
    lines += compare(
        "prompt",
        peer->name(),
        result.prompt_rates,
        result.peer_prompt_rates,
        compared);
    lines += compare(
        "decode",
        peer->name(),
        result.decode_rates,
        result.peer_decode_rates,
        compared);
    report["peer"] = std::move(compared);
  }
  if (options.profile) {
    int chunk = std::min(options.plan.prompt, options.plan.prefill_step_size);
    BenchProfile profile = profile_model(
        *model,
        random_tokens(chunk, summary.vocab_size),
        std::min(options.plan.decode, kProfiledSteps));
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
  verb->add_option(
          "-p,--n-prompt",
          options->plan.prompt,
          "Prompt tokens; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  verb->add_option(
          "-n,--n-gen",
          options->plan.decode,
          "Decoded tokens; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  verb->add_option(
          "-d,--n-depth",
          options->plan.depth,
          "Tokens of context before either")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  verb->add_option(
          "--parallel",
          options->plan.parallel,
          "Sequences that are decoded together")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  verb->add_option(
      "--peer",
      options->peer,
      "Alternate with another program on the same file and print the ratio: "
      "llama.cpp=PATH or ik_llama.cpp=PATH of its llama-bench, or "
      "mlx-lm=PYTHON");
  add_kernel_options(*verb, options->kernels);
  verb->add_option("-r,--repetitions", options->repeats, "Measured rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  verb->add_option(
          "--prefill-step-size",
          options->plan.prefill_step_size,
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
      "Prompt and decoding are measured apart, each after -d tokens.");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
