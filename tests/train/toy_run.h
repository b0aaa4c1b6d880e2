#pragma once

#include <filesystem>
#include <string>

#include "mlxx/train/trainer.h"
#include "tests/train/toy_training.h"

namespace mlxx::train {

// A training run of the toy model in one folder, as tests want it.
struct ToyRun {
  explicit ToyRun(std::filesystem::path where) : folder(std::move(where)) {
    options.iterations = 24;
    options.save_every = 4;
    options.report_every = 5;
    options.validate_every = 6;
    options.schedule.arguments = {0.05};
    options.schedule.warmup = 3;
    options.clip = 1;
    options.seed = 3;
    model.dropout = true;
    model.ratio = 4;
  }

  TrainEnd run(TrainObserver& observer, bool resume) {
    CheckpointFolder checkpoints(folder / "checkpoints");
    parts.trainable = &model;
    parts.differentiator = &differentiator;
    parts.data = &data;
    parts.validation = with_validation ? &validation : nullptr;
    const Objective objective(options.objective);
    const auto reference = live_reference(objective, differentiator);
    parts.reference = reference.get();
    parts.validation_reference = reference.get();
    Trainer trainer(parts, options, checkpoints, resume);
    notes = trainer.notes();
    const TrainEnd end = trainer.run(observer);
    progress = trainer.progress();
    return end;
  }

  std::filesystem::path folder;
  ToyModel model;
  ToyDifferentiator differentiator{model};
  ToyData data{{}};
  ToyData validation{{.samples = 5}};
  bool with_validation = true;
  TrainOptions options;
  Trainer::Parts parts;
  RunProgress progress;
  std::vector<std::string> notes;
};

}  // namespace mlxx::train
