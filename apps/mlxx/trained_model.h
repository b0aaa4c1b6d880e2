#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/mlxx/train_options.h"
#include "mlxx/generate/pipeline.h"
#include "mlxx/train/trainable.h"

namespace mlxx::apps {

// What a run trains, and how it is kept for others to use.
class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  virtual train::Trainable& trainable() = 0;
  // "LoRA adapters of rank 8 in 16 layers".
  virtual std::string description() const = 0;
  // Into `folder`, which is made: adapters that `mlxx generate` and mlx-lm
  // read, or weights that `mlxx fuse` and mlx-lm read.
  virtual void save(const std::filesystem::path& folder) const = 0;
};

// Errors of LoraAdapters; bad_file naming the tensor for a
// --resume-adapter-file that does not fit.
std::unique_ptr<TrainedModel> make_trained_model(
    const TrainCommandOptions& options,
    const generate::Pipeline& pipeline);

}  // namespace mlxx::apps
