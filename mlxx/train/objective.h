#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/core/mlx.h"
#include "mlxx/data/batch.h"
#include "mlxx/train/differentiate.h"

namespace mlxx::train {

enum class Method {
  sft,   // cross-entropy of the target tokens
  dpo,   // arXiv 2305.18290
  orpo,  // arXiv 2403.07691
};

// "sft"; invalid_request for another name.
Method method_of(const std::string& name);
std::string to_string(Method method);

struct ObjectiveOptions {
  Method method = Method::sft;
  double beta = 0.1;    // of DPO
  double lambda = 0.1;  // of ORPO
};

// What a method makes of the log-probabilities of a batch. SFT counts target
// tokens, the others pairs; a pair of which an answer has no token does not
// count.
class Objective {
 public:
  // invalid_request for a beta or lambda that is no positive number.
  explicit Objective(const ObjectiveOptions& options);

  const ObjectiveOptions& options() const {
    return options_;
  }
  // invalid_request if `batch` has no pairs and the method wants some.
  int64_t count(const data::Batch& batch) const;

  // The sum of each answer's log-probabilities, [pairs, 2] float32 (chosen,
  // rejected), of scores [rows, length].
  mx::array answer_sums(const data::Batch& batch, const mx::array& scores)
      const;

  // Sums are divided by `whole`, the count of all batches of one update, so
  // that they add up to that update's means whatever the batches are; one batch
  // with whole = count(batch) gives the gradients of the mean itself.
  // `reference`: the answer sums of the model before training, for DPO. count
  // (batch) > 0.
  //
  // Metrics of DPO: "accuracy", "margin", "chosen_reward", "rejected_reward";
  // of ORPO: "accuracy", "margin" (of mean log-probabilities), "nll",
  // "log_odds".
  ScoreLoss loss(
      const data::Batch& batch,
      int64_t whole,
      const std::optional<mx::array>& reference) const;

 private:
  ObjectiveOptions options_;
};

// log(1 - exp(x)) for x < 0, exact near 0 and far from it, as is its gradient;
// x is taken as -1e-7 if it is above that.
mx::array log1mexp(const mx::array& x);

}  // namespace mlxx::train
