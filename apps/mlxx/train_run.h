#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/mlxx/interrupt.h"
#include "apps/mlxx/train_options.h"
#include "mlxx/data/training_data.h"
#include "mlxx/generate/pipeline.h"
#include "mlxx/train/lora.h"

namespace mlxx::apps {

// The model and the data of a training run, loaded and checked.
struct TrainMaterial {
  generate::Pipeline pipeline;
  std::filesystem::path train_file;
  std::unique_ptr<data::TrainingData> training;
  std::unique_ptr<data::TrainingData> validation;  // may be null
  std::unique_ptr<data::TrainingData> test;        // may be null
};

// not_found naming the file of --data that is missing; errors of loading and
// of open_training_data(). Ctrl-C gives cancelled.
TrainMaterial load_train_material(
    const TrainCommandOptions& options,
    const InterruptScope& interrupt);

// Batches of the run: --iters, or --epochs of the data.
int64_t iterations_of(
    const TrainCommandOptions& options,
    const data::TrainingData& data);

// What --resume compares besides the trainer's options, each as JSON text:
// model, data and what decides on parameters and batches.
std::map<std::string, std::string> train_identity(
    const TrainCommandOptions& options,
    const TrainMaterial& material);

// What the bits of a run depend on besides: device, threads, kernels, versions.
std::map<std::string, std::string> train_environment(
    const TrainCommandOptions& options);

// Greedy answer of the model as it computes on this thread now; through the
// chat template where there is one.
std::string sample_answer(
    const generate::Pipeline& pipeline,
    const std::string& prompt,
    int max_tokens,
    const std::function<bool()>& is_cancelled);

}  // namespace mlxx::apps
