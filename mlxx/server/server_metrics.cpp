#include "mlxx/server/server_metrics.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "mlxx/server/source_report.h"

namespace mlxx::server {

namespace {

std::vector<double> seconds_bounds() {
  return {
      0.001,
      0.0025,
      0.005,
      0.01,
      0.025,
      0.05,
      0.1,
      0.25,
      0.5,
      1,
      2.5,
      5,
      10,
      25,
      50,
      100};
}

std::vector<double> token_bounds() {
  return {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536};
}

void write_head(
    std::string& out,
    const std::string& name,
    const std::string& help,
    const char* type) {
  fmt::format_to(
      std::back_inserter(out),
      "# HELP {} {}\n# TYPE {} {}\n",
      name,
      help,
      name,
      type);
}

// A label's value, with what the format escapes.
std::string quoted(const std::string& value) {
  std::string result = "\"";
  for (char c : value) {
    if (c == '\\' || c == '"') {
      result += '\\';
    }
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  result += '"';
  return result;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::add(double value) {
  auto range = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(range - bounds_.begin())];
  sum_ += value;
  ++count_;
}

void Histogram::write(
    std::string& out,
    const std::string& name,
    const std::string& help,
    const std::string& labels) const {
  write_head(out, name, help, "histogram");
  auto to = std::back_inserter(out);
  uint64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    fmt::format_to(
        to,
        "{}_bucket{{{},le=\"{}\"}} {}\n",
        name,
        labels,
        bounds_[i],
        below);
  }
  fmt::format_to(to, "{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, count_);
  fmt::format_to(to, "{}_sum{{{}}} {}\n", name, labels, sum_);
  fmt::format_to(to, "{}_count{{{}}} {}\n", name, labels, count_);
}

ServerMetrics::ServerMetrics()
    : first_token_(seconds_bounds()),
      per_token_(seconds_bounds()),
      total_(seconds_bounds()),
      queue_(seconds_bounds()),
      prefill_(seconds_bounds()),
      decode_(seconds_bounds()),
      prompt_tokens_(token_bounds()),
      generated_tokens_(token_bounds()) {}

void ServerMetrics::add_answer(const AnswerFigures& figures) {
  std::lock_guard lock(mutex_);
  if (figures.first_token_seconds >= 0) {
    first_token_.add(figures.first_token_seconds);
  }
  total_.add(figures.total_seconds);
  for (const auto& finish : figures.finishes) {
    const auto& usage = finish.usage;
    ++finished_[std::string(engine::to_string(finish.reason))];
    queue_.add(usage.queue_seconds);
    prefill_.add(usage.prefill_seconds);
    decode_.add(usage.decode_seconds);
    prompt_tokens_.add(usage.prompt_tokens);
    generated_tokens_.add(usage.completion_tokens);
    if (usage.completion_tokens > 1) {
      per_token_.add(usage.decode_seconds / (usage.completion_tokens - 1));
    }
  }
}

void ServerMetrics::add_http(
    const std::string& route,
    int status,
    double seconds) {
  std::lock_guard lock(mutex_);
  ++http_[{route, status}];
  http_seconds_ += seconds;
}

std::string ServerMetrics::text(
    const engine::EngineStats& engine,
    const std::string& model,
    size_t connections,
    uint64_t restarts) const {
  std::string out;
  std::string labels = fmt::format("model_name={}", quoted(model));
  auto single = [&](const std::string& name,
                    const std::string& help,
                    const char* type,
                    double value) {
    write_head(out, name, help, type);
    fmt::format_to(
        std::back_inserter(out),
        "{}{{{}}} {}\n",
        name,
        labels,
        value);
  };
  auto number = [](auto value) { return static_cast<double>(value); };
  std::lock_guard lock(mutex_);
  single(
      "vllm:num_requests_running",
      "Sequences that are computed now.",
      "gauge",
      engine.prefilling + engine.decoding);
  single(
      "vllm:num_requests_waiting",
      "Requests that wait for room.",
      "gauge",
      engine.waiting);
  single(
      "vllm:prompt_tokens_total",
      "Tokens of prompts, found ones included.",
      "counter",
      number(engine.prompt_tokens));
  single(
      "vllm:generation_tokens_total",
      "Tokens chosen.",
      "counter",
      number(engine.generated_tokens));
  single(
      "vllm:prefix_cache_queries_total",
      "Tokens of prompts looked up in the prefix cache.",
      "counter",
      number(engine.prompt_tokens));
  single(
      "vllm:prefix_cache_hits_total",
      "Tokens of prompts found there.",
      "counter",
      number(engine.cached_tokens));
  write_head(
      out,
      "vllm:request_success_total",
      "Choices that ended.",
      "counter");
  for (const auto& [reason, count] : finished_) {
    fmt::format_to(
        std::back_inserter(out),
        "vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n",
        labels,
        reason,
        count);
  }
  first_token_.write(
      out,
      "vllm:time_to_first_token_seconds",
      "From the request to its first token.",
      labels);
  per_token_.write(
      out,
      "vllm:time_per_output_token_seconds",
      "Mean time between the tokens of a choice.",
      labels);
  total_.write(
      out,
      "vllm:e2e_request_latency_seconds",
      "From the request to the end of its answer.",
      labels);
  queue_.write(
      out,
      "vllm:request_queue_time_seconds",
      "Waiting for room.",
      labels);
  prefill_.write(
      out,
      "vllm:request_prefill_time_seconds",
      "Reading the prompt.",
      labels);
  decode_.write(
      out,
      "vllm:request_decode_time_seconds",
      "Writing the answer.",
      labels);
  prompt_tokens_
      .write(out, "vllm:request_prompt_tokens", "Tokens of a prompt.", labels);
  generated_tokens_.write(
      out,
      "vllm:request_generation_tokens",
      "Tokens of a choice.",
      labels);
  single(
      "mlxx:requests_refused_total",
      "Requests for which there was no room.",
      "counter",
      number(engine.refused));
  single(
      "mlxx:requests_cancelled_total",
      "Requests whose client went away.",
      "counter",
      number(engine.cancelled));
  single(
      "mlxx:steps_total",
      "Steps of decoding.",
      "counter",
      number(engine.steps));
  single(
      "mlxx:step_seconds_total",
      "Time spent in them.",
      "counter",
      engine.step_seconds);
  single(
      "mlxx:prefill_seconds_total",
      "Time spent reading prompts.",
      "counter",
      engine.prefill_seconds);
  single(
      "mlxx:engine_healthy",
      "1 if the engine can answer.",
      "gauge",
      engine.healthy ? 1 : 0);
  single(
      "mlxx:engine_restarts_total",
      "Times that the engine's process was started again.",
      "counter",
      number(restarts));
  single(
      "mlxx:http_connections",
      "Connections that are open.",
      "gauge",
      number(connections));
  write_source_metrics(out, engine.source, labels);
  write_head(out, "mlxx:http_requests_total", "Requests answered.", "counter");
  for (const auto& [key, count] : http_) {
    fmt::format_to(
        std::back_inserter(out),
        "mlxx:http_requests_total{{route={},status=\"{}\"}} {}\n",
        quoted(key.first),
        key.second,
        count);
  }
  single(
      "mlxx:http_request_seconds_total",
      "Time from requests to the ends of their answers.",
      "counter",
      http_seconds_);
  return out;
}

}  // namespace mlxx::server
