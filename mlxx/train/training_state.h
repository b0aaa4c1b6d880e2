#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/train/optimizer.h"

namespace mlxx::train {

// How far a run is. All numbers that the next steps, reports and decisions
// depend on, so that a run that is taken up again does what it would have done.
struct RunProgress {
  int64_t iteration = 0;  // batches taken from the data, skipped ones included
  int64_t updates = 0;
  int64_t trained_tokens = 0;
  int64_t skipped_batches = 0;  // without a target
  // Since the last report.
  double loss_sum = 0;
  double count_sum = 0;
  std::map<std::string, double> metric_sums;
  int64_t report_tokens = 0;
  int64_t report_iterations = 0;
  double report_seconds = 0;
  // Of the validations.
  std::optional<double> best_loss;
  int64_t best_iteration = 0;
  int64_t validations_since_best = 0;
  bool stopped_early = false;

  bool operator==(const RunProgress&) const = default;
};

struct TrainingState {
  NamedArrays weights;
  NamedArrays optimizer;
  RunProgress progress;
  // What the numbers depend on, each value as JSON text.
  std::map<std::string, std::string> options;
  // What bits depend on besides: threads, kernels, versions. By name.
  std::map<std::string, std::string> environment = {};
};

// Checkpoints of one run: folders named by their iteration ("0000100"), each
// with weights.safetensors, optimizer.safetensors and state.json, which holds
// the checksums of both files and its own. A folder appears whole or not at
// all, also when the process is killed at any moment.
class CheckpointFolder {
 public:
  // Made if it is not there; what killed processes left is removed.
  explicit CheckpointFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const {
    return folder_;
  }
  // Ascending.
  std::vector<int64_t> iterations() const;
  // Writes, then removes all but the `keep` newest. internal if the disk is
  // full, naming the file: then the others are all still there.
  std::filesystem::path save(const TrainingState& state, int keep) const;
  // The newest one that is whole; why newer ones were passed over is appended
  // to `damaged`. Nothing if there is none.
  std::optional<TrainingState> newest(std::vector<std::string>& damaged) const;
  // bad_file naming what is damaged.
  TrainingState read(int64_t iteration) const;
  // Of all iterations: for a run that begins anew.
  void clear() const;

 private:
  std::filesystem::path folder_;
};

// A sentence for each that differs and is in both: the run goes on, but not
// exactly.
std::vector<std::string> environment_changes(
    const std::map<std::string, std::string>& saved,
    const std::map<std::string, std::string>& now);

// invalid_request naming an option that differs, with both values, if
// `now` is not what the checkpoint was made with.
void require_same_options(
    const std::map<std::string, std::string>& saved,
    const std::map<std::string, std::string>& now);

}  // namespace mlxx::train
