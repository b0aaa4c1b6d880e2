#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/engine/engine.h"

namespace mlxx::server {

// How often values fell into which range, as Prometheus counts them.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void add(double value);
  void write(
      std::string& out,
      const std::string& name,
      const std::string& help,
      const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;  // of each range; the last has no end
  double sum_ = 0;
  uint64_t count_ = 0;
};

// What one answer took, once it has ended.
struct AnswerFigures {
  std::vector<engine::Finish> finishes;  // of all choices
  double first_token_seconds = -1;       // since the request was there
  double total_seconds = 0;
};

// Counts since the start, in Prometheus' text format. Names that start with
// "vllm:" mean what they mean there. Thread-safe.
class ServerMetrics {
 public:
  ServerMetrics();
  void add_answer(const AnswerFigures& figures);
  void add_http(const std::string& route, int status, double seconds);
  std::string text(
      const engine::EngineStats& engine,
      const std::string& model,
      size_t connections,
      uint64_t restarts) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_;
  Histogram per_token_;
  Histogram total_;
  Histogram queue_;
  Histogram prefill_;
  Histogram decode_;
  Histogram prompt_tokens_;
  Histogram generated_tokens_;
  std::map<std::string, uint64_t> finished_;
  std::map<std::pair<std::string, int>, uint64_t> http_;
  double http_seconds_ = 0;
};

}  // namespace mlxx::server
