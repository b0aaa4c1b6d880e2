#pragma once

#include "mlxx/models/model.h"
#include "mlxx/models/training_face.h"
#include "mlxx/nn/training_rows.h"
#include "mlxx/train/target_rows.h"

namespace mlxx::train {

// A model's way from the tokens of one batch to the scores of its targets.
// Parameters are those of the moment of each call.
class TextPass {
 public:
  // invalid_request for a batch that is none, or whose tokens the model lacks;
  // unsupported for a packed row, naming a model that cannot take it.
  // `trains_head`: gradients reach the head's weight, which is dense.
  TextPass(
      const models::Model& model,
      const data::Batch& batch,
      bool trains_head = false);

  // 0: the model is a whole, only scores() without a state is there.
  int layers() const;
  mx::array embedded() const;
  mx::array layer(int index, const mx::array& h) const;
  // From the last layer's output: log-probabilities, float32 [rows, length].
  mx::array scores(const mx::array& h, bool differentiable = true) const;
  // From the tokens.
  mx::array scores(bool differentiable = true) const;

 private:
  mx::array adapted_scores(const mx::array& states) const;

  const models::Model& model_;
  const models::TrainingFace* face_;
  bool trains_head_;
  TargetRows targets_;
  mx::array tokens_;  // [rows, length]
  nn::TrainingRows rows_;
};

}  // namespace mlxx::train
