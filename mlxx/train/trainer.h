#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/data/training_data.h"
#include "mlxx/train/differentiate.h"
#include "mlxx/train/learning_rate.h"
#include "mlxx/train/objective.h"
#include "mlxx/train/optimizer.h"
#include "mlxx/train/reference_scores.h"
#include "mlxx/train/trainable.h"
#include "mlxx/train/training_state.h"

namespace mlxx::train {

// An iteration is one batch, as in mlx-lm. What happens every so many of them
// happens after the update in which that many are complete.
struct TrainOptions {
  ObjectiveOptions objective = {};
  OptimizerOptions optimizer = {};
  ScheduleOptions schedule = {};
  int64_t iterations = 1000;
  // Batches of one update. Its loss is the mean over all their tokens or
  // pairs, as if they were one batch.
  int accumulation = 1;
  double clip = 0;  // largest norm of an update's gradients; 0: any
  uint64_t seed = 0;
  int64_t report_every = 10;
  int64_t validate_every = 200;
  int64_t validation_batches = 25;  // -1: all
  int64_t save_every = 100;
  int keep_checkpoints = 2;
  // Validations without a better one after which the run ends; 0: never.
  int64_t patience = 0;
  // Buffers that MLX keeps for reuse are given back after an update if they
  // are more.
  size_t cache_bytes = size_t{2} << 30;
  // What the numbers depend on besides (model, data), for --resume.
  std::map<std::string, std::string> identity = {};

  // What their bits depend on besides: TrainingState::environment.
  std::map<std::string, std::string> environment = {};

  // All that the numbers depend on, each as JSON text.
  std::map<std::string, std::string> fingerprint() const;
};

// Means since the last report.
struct TrainReport {
  int64_t iteration = 0;
  double loss = 0;
  std::map<std::string, double> metrics;
  double learning_rate = 0;
  double gradient_norm = 0;  // of the last update, before clipping
  double tokens_per_second = 0;
  double iterations_per_second = 0;
  int64_t trained_tokens = 0;
  int64_t skipped_batches = 0;
  size_t peak_memory = 0;
};

struct Evaluation {
  int64_t iteration = 0;
  double loss = 0;  // mean over all tokens or pairs
  std::map<std::string, double> metrics;
  double seconds = 0;
  int64_t batches = 0;
  int64_t skipped_batches = 0;
  bool best = false;
};

struct StepInfo {
  int64_t iteration = 0;
  int64_t iterations = 0;
  double loss = 0;
  int64_t tokens = 0;  // that were predicted
  double seconds = 0;
};

// Told what happens, on the thread that trains. Exceptions pass through.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_rehearsal(int64_t /* tokens */) {}
  virtual void on_step(const StepInfo& /* step */) {}
  virtual void on_report(const TrainReport& /* report */) {}
  virtual void on_evaluation_batch(int64_t /* done */, int64_t /* all */) {}
  virtual void on_validation(const Evaluation& /* validation */) {}
  virtual void on_checkpoint(const std::filesystem::path& /* folder */) {}
  virtual void on_note(const std::string& /* text */) {}
};

enum class TrainEnd { finished, stopped_early, cancelled };

class Trainer {
 public:
  struct Parts {
    Trainable* trainable = nullptr;
    const Differentiator* differentiator = nullptr;
    const data::TrainingData* data = nullptr;
    const data::TrainingData* validation = nullptr;  // null: none
    const ReferenceScores* reference = nullptr;      // of DPO
    const ReferenceScores* validation_reference = nullptr;
    // Writes the trained weights as they are now, for others to use; "" is the
    // newest, "best" the best validated.
    std::function<void(const std::string& which, int64_t iteration)>
        save_weights;
    // Asked between batches: true saves and ends the run.
    std::function<bool()> is_cancelled;
    // At each validation, with the model as it is.
    std::function<void(int64_t iteration)> on_validated;
  };

  // Takes up the newest whole checkpoint of `checkpoints` if `resume`. All
  // parts outlive the trainer. invalid_request for options out of range, and
  // naming the option if it is not what the checkpoint was made with.
  Trainer(
      const Parts& parts,
      TrainOptions options,
      const CheckpointFolder& checkpoints,
      bool resume);

  // To the last iteration, an early stop or a cancellation; a checkpoint is
  // there afterwards. A loss or gradient that is no finite number is internal,
  // naming the samples, and leaves a checkpoint of the weights before.
  TrainEnd run(TrainObserver& observer);

  // What there was to say about taking up a checkpoint.
  const std::vector<std::string>& notes() const {
    return notes_;
  }

  const RunProgress& progress() const {
    return progress_;
  }

 private:
  struct Micro {
    data::Batch batch;
    int64_t index = 0;
    int64_t count = 0;
  };

  void check_options() const;
  void restore(const TrainingState& state);
  void rehearse() const;
  bool step();
  std::vector<Micro> next_batches();
  bool apply(const std::vector<Micro>& micros, StepInfo& info);
  ScoreLoss loss_of(const Micro& micro, int64_t whole) const;
  [[noreturn]] void fail_not_finite(
      const std::vector<Micro>& micros,
      const char* what);
  void end_of_step(int64_t before, const StepInfo& info);
  void report();
  void validate();
  void save();

  Parts parts_;
  TrainOptions options_;
  const CheckpointFolder& checkpoints_;
  Objective objective_;
  LearningRate rate_;
  Optimizer optimizer_;
  RunProgress progress_;
  std::vector<std::string> notes_;
  TrainObserver* observer_ = nullptr;  // while run() does
  int64_t saved_iteration_ = -1;
  double last_rate_ = 0;
  double last_norm_ = 0;
};

// The objective's mean over the first `batches` batches of `data` (-1: all of
// its epoch), without changing anything.
Evaluation evaluate(
    const Objective& objective,
    const Differentiator& differentiator,
    const ReferenceScores* reference,
    const data::TrainingData& data,
    int64_t batches,
    TrainObserver* observer,
    const std::function<bool()>& is_cancelled);

}  // namespace mlxx::train
