#include "apps/mlxx/train_progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "apps/mlxx/console.h"
#include "apps/mlxx/generate_report.h"
#include "mlxx/core/memory.h"

namespace mlxx::apps {

namespace {

constexpr size_t kRecentSteps = 50;
constexpr int kBar = 20;

std::string metrics_text(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += fmt::format(", {} {:.3f}", name, value);
  }
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string bar(double share) {
  const int full = static_cast<int>(std::lround(share * kBar));
  std::string text = "[";
  for (int i = 0; i < kBar; ++i) {
    text += i < full ? "=" : " ";
  }
  return text + "]";
}

}  // namespace

std::string format_duration(double seconds) {
  const auto all = static_cast<int64_t>(std::lround(std::max(seconds, 0.0)));
  if (all >= 3600) {
    return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
  }
  return fmt::format("{}:{:02}", all / 60, all % 60);
}

TrainProgress::TrainProgress(train::MetricsFile& metrics, int64_t iterations)
    : metrics_(metrics),
      iterations_(iterations),
      terminal_(is_terminal(Stream::err)) {}

TrainProgress::~TrainProgress() {
  clear();
}

void TrainProgress::show(const std::string& status) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  const auto now = Clock::now();
  if (!terminal_ || (shown_ && now - last_shown_ < kPause)) {
    return;
  }
  last_shown_ = now;
  shown_ = true;
  const auto width =
      static_cast<size_t>(std::max(terminal_width(Stream::err) - 1, 20));
  print_error("\r\x1b[K" + status.substr(0, width));
}

void TrainProgress::clear() {
  if (shown_) {
    print_error("\r\x1b[K");
    shown_ = false;
  }
}

void TrainProgress::say(const std::string& text) {
  clear();
  print(text + "\n");
}

void TrainProgress::on_rehearsal(int64_t tokens) {
  show(fmt::format("trying the largest batch, {} tokens", tokens));
}

void TrainProgress::on_step(const train::StepInfo& step) {
  iteration_ = step.iteration;
  recent_.push_back({step.seconds, step.tokens, step.iteration});
  if (recent_.size() > kRecentSteps) {
    recent_.pop_front();
  }
  double seconds = 0;
  int64_t tokens = 0;
  for (const auto& one : recent_) {
    seconds += one.seconds;
    tokens += one.tokens;
  }
  const double of_iteration = recent_.size() < 2
      ? step.seconds
      : (seconds - recent_.front().seconds) /
          static_cast<double>(std::max<int64_t>(
              recent_.back().iteration - recent_.front().iteration,
              1));
  show(fmt::format(
      "{} {}/{}  loss {:.3f}  {:.0f} tok/s  {}  {} left",
      bar(static_cast<double>(step.iteration) /
          static_cast<double>(step.iterations)),
      step.iteration,
      step.iterations,
      step.loss,
      seconds > 0 ? static_cast<double>(tokens) / seconds : 0,
      format_bytes(memory_use().peak),
      format_duration(
          of_iteration *
          static_cast<double>(step.iterations - step.iteration))));
}

void TrainProgress::on_report(const train::TrainReport& report) {
  metrics_.add(report);
  say(fmt::format(
      "iteration {}: loss {:.4f}{}, rate {:.3g}, gradient {:.3g}, {:.0f} "
      "tok/s, {} tokens, peak {}{}",
      report.iteration,
      report.loss,
      metrics_text(report.metrics),
      report.learning_rate,
      report.gradient_norm,
      report.tokens_per_second,
      report.trained_tokens,
      format_bytes(report.peak_memory),
      report.skipped_batches > 0 ? fmt::format(
                                       ", {} batches without a target skipped",
                                       report.skipped_batches)
                                 : ""));
}

void TrainProgress::on_evaluation_batch(int64_t done, int64_t all) {
  show(fmt::format("validating, {} of {} batches", done, all));
}

void TrainProgress::on_validation(const train::Evaluation& validation) {
  metrics_.add(validation);
  say(fmt::format(
      "iteration {}: validation loss {:.4f}{}, {:.1f} s{}",
      validation.iteration,
      validation.loss,
      metrics_text(validation.metrics),
      validation.seconds,
      validation.best && validation.iteration > 0 ? ", the best so far" : ""));
}

void TrainProgress::on_checkpoint(const std::filesystem::path& folder) {
  say(fmt::format("checkpoint {}", folder.string()));
}

void TrainProgress::on_note(const std::string& text) {
  clear();
  print_error(fmt::format("mlxx: {}\n", text));
}

void TrainProgress::on_sample(
    int64_t iteration,
    const std::string& prompt,
    const std::string& answer) {
  metrics_.add_sample(iteration, prompt, answer);
  say(fmt::format(
      "iteration {}: {} -> {}",
      iteration,
      for_display(Stream::out, prompt),
      for_display(Stream::out, answer)));
}

}  // namespace mlxx::apps
