#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "mlxx/core/mlx.h"
#include "mlxx/data/training_data.h"
#include "mlxx/train/differentiate.h"
#include "mlxx/train/objective.h"

namespace mlxx::train {

// How likely the model before training finds the answers of a batch.
class ReferenceScores {
 public:
  virtual ~ReferenceScores() = default;
  // [pairs, 2] float32: the sums of chosen and rejected, evaluated.
  virtual mx::array of(const data::Batch& batch) const = 0;
};

// Asks the model each time, its change switched off. Both outlive the result.
std::unique_ptr<ReferenceScores> live_reference(
    const Objective& objective,
    const Differentiator& differentiator);

// Asks once for all samples, in the order of the first epoch, and keeps the
// sums in `file`; one that is there with the same `identity` (model, data,
// options) is read instead, so that a run that is taken up has the same
// numbers. Needed where the model itself is trained: it is asked as it is, with
// `untrained`, before its first step. `progress` may throw.
// bad_file naming a sample that a batch asks for and the file lacks.
std::unique_ptr<ReferenceScores> kept_reference(
    const Objective& objective,
    const Differentiator& differentiator,
    const data::TrainingData& data,
    const std::filesystem::path& file,
    const std::string& identity,
    bool untrained,
    const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace mlxx::train
