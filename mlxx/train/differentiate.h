#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/data/batch.h"
#include "mlxx/models/model.h"
#include "mlxx/plan/training_memory.h"
#include "mlxx/train/trainable.h"

namespace mlxx::train {

// A method's loss as sums, so that batches of any sizes add up: the loss of a
// step is the sum of `loss` divided by the sum of `count`.
struct LossSums {
  mx::array loss;   // float32 scalar
  mx::array count;  // float32 scalar: target tokens, or pairs
  // Further sums to report, each divided by the sum of `count`.
  std::vector<std::pair<std::string, mx::array>> metrics = {};
};

// From the log-probability of every target token, float32 [rows, length], 0
// where batch.targets is 0.
using ScoreLoss = std::function<LossSums(const mx::array& logprobs)>;

// How activations are had in the backward pass.
enum class Recompute {
  automatic,   // as the memory plan says
  none,        // all are kept
  light,       // norms, activations and adapters are computed again
  checkpoint,  // those of a layer are computed again
  segments,    // one segment's at a time: forward to its end, then backward
};

struct DifferentiateOptions {
  Recompute recompute = Recompute::automatic;
  int segment_layers = 0;   // of Recompute::segments; 0: chosen
  size_t memory_limit = 0;  // bytes, for automatic; 0: the device's
};

// Gradients of a loss over a model's scores in its trainable parameters. Never
// stores [tokens, vocabulary].
class Differentiator {
 public:
  struct Result {
    LossSums sums;
    std::vector<mx::array> gradients;  // of sums.loss, in the Trainable's order
  };
  virtual ~Differentiator() = default;

  // Results may be evaluated already.
  virtual Result apply(const data::Batch& batch, const ScoreLoss& loss)
      const = 0;
  // The scores alone, [rows, length]; lazy. `reference`: without the change.
  virtual mx::array scores(const data::Batch& batch, bool reference) const = 0;
  // "none", "checkpoint", "segments of 4 layers"; chosen automatically, that
  // of the latest batch, "automatic" before the first.
  virtual std::string description() const = 0;
  // What a step on this batch will take; nothing is evaluated. `optimizer`:
  // bytes that the optimizer keeps.
  virtual plan::TrainingMemory memory(
      const data::Batch& /* batch */,
      size_t /* optimizer */) const {
    return {};
  }
};

// `model` and `trainable` outlive the result. unsupported, naming it, for what
// a model cannot do (packed rows in recurrent layers).
std::unique_ptr<Differentiator> make_differentiator(
    const models::Model& model,
    Trainable& trainable,
    const DifferentiateOptions& options);

}  // namespace mlxx::train
