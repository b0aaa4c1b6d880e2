#pragma once

#include <chrono>
#include <deque>
#include <string>

#include "mlxx/train/metrics_file.h"
#include "mlxx/train/trainer.h"

namespace mlxx::apps {

// Says what a training run does: reports as lines on stdout, on a terminal
// also a line on stderr that shows how far it is, and all numbers in
// metrics.jsonl.
class TrainProgress : public train::TrainObserver {
 public:
  // `metrics` outlives this. `iterations`: of the whole run.
  TrainProgress(train::MetricsFile& metrics, int64_t iterations);
  ~TrainProgress() override;

  void on_rehearsal(int64_t tokens) override;
  void on_step(const train::StepInfo& step) override;
  void on_report(const train::TrainReport& report) override;
  void on_evaluation_batch(int64_t done, int64_t all) override;
  void on_validation(const train::Evaluation& validation) override;
  void on_checkpoint(const std::filesystem::path& folder) override;
  void on_note(const std::string& text) override;
  void on_sample(
      int64_t iteration,
      const std::string& prompt,
      const std::string& answer);
  // A line of its own on stdout.
  void say(const std::string& text);

 private:
  void show(const std::string& status);
  void clear();

  using Clock = std::chrono::steady_clock;
  train::MetricsFile& metrics_;
  int64_t iterations_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point last_shown_ = {};
  // Of the last steps: seconds, tokens, iterations.
  struct Recent {
    double seconds;
    int64_t tokens;
    int64_t iteration;
  };
  std::deque<Recent> recent_;
  int64_t iteration_ = 0;
};

// "1:05:09", "3:20".
std::string format_duration(double seconds);

}  // namespace mlxx::apps
