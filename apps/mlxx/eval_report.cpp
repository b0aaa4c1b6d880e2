#include "apps/mlxx/eval_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mlxx::apps {
namespace {

std::string line(const char* name, const std::string& value) {
  return fmt::format("{:<16}{}\n", name, value);
}

// "12.3456 (95 %: 12.1 to 12.6)"
std::string with_interval(const eval::Interval& of) {
  if (of.low == of.high) {
    return fmt::format("{:.5g}", of.mean);
  }
  return fmt::format(
      "{:.5g} (95 %: {:.5g} to {:.5g})",
      of.mean,
      of.low,
      of.high);
}

std::string percent(const eval::Interval& of) {
  std::string mean = fmt::format("{:.2f} %", 100 * of.mean);
  return of.low == of.high ? mean
                           : fmt::format(
                                 "{} (95 %: {:.2f} to {:.2f})",
                                 mean,
                                 100 * of.low,
                                 100 * of.high);
}

std::string tokens_line(int64_t tokens, int64_t windows) {
  return line("tokens", fmt::format("{} in {} windows", tokens, windows));
}

OrderedJson interval(const eval::Interval& of) {
  return {
      {"mean", of.mean},
      {"standard_error", of.standard_error},
      {"low", of.low},
      {"high", of.high}};
}

std::string task_lines(const eval::TaskReport& task) {
  return line("questions", fmt::format("{}", task.questions)) +
      line("acc", percent(task.accuracy)) +
      line("acc_norm", percent(task.normalized_accuracy));
}

// Keys as lm-eval has them.
OrderedJson task_json(const eval::TaskReport& task) {
  return {
      {"questions", task.questions},
      {"acc", task.accuracy.mean},
      {"acc_stderr", task.accuracy.standard_error},
      {"acc_low", task.accuracy.low},
      {"acc_high", task.accuracy.high},
      {"acc_norm", task.normalized_accuracy.mean},
      {"acc_norm_stderr", task.normalized_accuracy.standard_error},
      {"acc_norm_low", task.normalized_accuracy.low},
      {"acc_norm_high", task.normalized_accuracy.high}};
}

}  // namespace

std::string as_text(const eval::PerplexityReport& report) {
  return line("perplexity", with_interval(report.perplexity)) +
      line("loss", with_interval(report.loss)) +
      tokens_line(report.tokens, report.windows);
}

std::string as_text(const eval::DivergenceReport& report) {
  return line("KL, mean", with_interval(report.mean)) +
      line("KL, median", fmt::format("{:.5g}", report.median)) +
      line("KL, 90 %", fmt::format("{:.5g}", report.p90)) +
      line("KL, 99 %", fmt::format("{:.5g}", report.p99)) +
      line("KL, largest", fmt::format("{:.5g}", report.largest)) +
      line("same best token", percent(report.same_top)) +
      line("loss", with_interval(report.other_loss)) +
      line("reference loss", with_interval(report.reference_loss)) +
      line("change of loss", with_interval(report.loss_change)) +
      tokens_line(report.tokens, report.windows);
}

std::string as_text(const eval::ChoiceReport& report) {
  std::string out;
  for (const auto& [name, task] : report.tasks) {
    out += line("task", name) + task_lines(task) + "\n";
  }
  if (report.tasks.size() > 1) {
    out += line("task", "all");
  }
  return report.tasks.size() == 1 ? out : out + task_lines(report.all);
}

OrderedJson as_json(const eval::PerplexityReport& report) {
  return {
      {"perplexity", interval(report.perplexity)},
      {"loss", interval(report.loss)},
      {"tokens", report.tokens},
      {"windows", report.windows}};
}

OrderedJson as_json(const eval::DivergenceReport& report) {
  OrderedJson kl = interval(report.mean);
  kl["median"] = report.median;
  kl["p90"] = report.p90;
  kl["p99"] = report.p99;
  kl["largest"] = report.largest;
  return {
      {"kl", kl},
      {"same_top", interval(report.same_top)},
      {"loss", interval(report.other_loss)},
      {"reference_loss", interval(report.reference_loss)},
      {"loss_change", interval(report.loss_change)},
      {"tokens", report.tokens},
      {"windows", report.windows}};
}

OrderedJson as_json(const eval::ChoiceReport& report) {
  OrderedJson out = task_json(report.all);
  OrderedJson tasks = OrderedJson::object();
  for (const auto& [name, task] : report.tasks) {
    tasks[name] = task_json(task);
  }
  out["tasks"] = std::move(tasks);
  out["logprobs"] = report.logprobs;
  return out;
}

}  // namespace mlxx::apps
