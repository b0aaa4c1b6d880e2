#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mlxx::train {

struct TrainReport;
struct Evaluation;

// What one line of metrics.jsonl says.
struct MetricsLine {
  int64_t iteration = 0;
  std::map<std::string, double> numbers;
};

// metrics.jsonl of a run: one JSON object a line, {"iteration": 10, "loss": ..}
// for a report and {"iteration": 10, "validation_loss": ..} for a validation,
// each on the disk when the call returns.
class MetricsFile {
 public:
  // Lines of iterations after `resumed_at` go, since they will come again; -1:
  // all. A last line that a kill has cut off goes too. internal if the file
  // cannot be written.
  MetricsFile(std::filesystem::path path, int64_t resumed_at);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void add(const TrainReport& report);
  void add(const Evaluation& validation);
  void add_sample(
      int64_t iteration,
      const std::string& prompt,
      const std::string& answer);
  // The reports and validations so far.
  const std::vector<MetricsLine>& lines() const {
    return lines_;
  }

 private:
  void append(const std::string& line);

  std::filesystem::path path_;
  std::vector<MetricsLine> lines_;
  int descriptor_ = -1;
};

// The curves of loss and validation loss over the iterations, as SVG.
std::string loss_plot(const std::vector<MetricsLine>& lines);

}  // namespace mlxx::train
