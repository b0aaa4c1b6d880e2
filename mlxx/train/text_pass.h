#pragma once

#include <optional>

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
  // `keeps_products`: as nn::TrainingRows.
  mx::array layer(int index, const mx::array& h, bool keeps_products = false)
      const;
  // From the last layer's output: log-probabilities, float32 [rows, length].
  mx::array scores(const mx::array& h, bool differentiable = true) const;
  // From the tokens.
  mx::array scores(bool differentiable = true) const;

 private:
  mx::array plain_scores(const mx::array& h) const;
  // states [n, E] -> [n], with logits of a few hundred rows at a time.
  mx::array scores_in_pieces(
      const mx::array& states,
      const mx::array& targets,
      mx::array (
          *score)(const mx::array& logits, const mx::array& targets)) const;

  const models::Model& model_;
  const models::TrainingFace* face_;
  bool trains_head_;
  TargetRows targets_;
  mx::array tokens_;  // [rows, length]
  nn::TrainingRows rows_;
  // Whether all is computed as by the reference, all tokens but the last of a
  // row, in fallback mode.
  bool plain_ = false;
  std::optional<mx::array> targets_of_rows_;  // [rows, length], if so
};

}  // namespace mlxx::train
