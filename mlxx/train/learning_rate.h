#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::train {

// The learning rate over the updates, as mlx.optimizers computes it, bit for
// bit. Names and arguments are those of its functions:
//   constant           rate
//   linear_schedule    init, end, steps
//   cosine_decay       init, steps[, end]
//   exponential_decay  init, rate
//   step_decay         init, rate, steps
// A warm-up goes linearly from warmup_init to the first argument; the schedule
// itself begins at update `warmup` + 1, as in mlx-lm.
struct ScheduleOptions {
  std::string name = "constant";
  std::vector<double> arguments = {1e-5};
  int64_t warmup = 0;  // updates
  double warmup_init = 0;
};

class LearningRate {
 public:
  // invalid_request naming what is unknown, missing or out of range.
  explicit LearningRate(ScheduleOptions options);

  // Of the update with that number, counted from 0; float32 scalar.
  mx::array at(int64_t update) const;

 private:
  ScheduleOptions options_;
};

}  // namespace mlxx::train
