#pragma once

#include "mlxx/core/mlx.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::models {

// What makes scores of the last norm's output:
// softcap(x / input_divisor @ weight.T + bias, times multiplier / divisor).
struct HeadParts {
  const Parameter* weight;  // [V, E]; the embedding's where the two are tied
  const Parameter* bias;    // [V]; null: none
  float input_divisor = 1;
  float multiplier = 1;
  float divisor = 1;
  float softcap = 0;  // 0: none
  bool tied = false;
  kernels::Selection selection = {};
};

// A model in the parts that training runs one by one: whole texts, without
// caches, in the scope of nn/training_rows.h, which says where texts begin. All
// is lazy and differentiable.
class TrainingFace {
 public:
  virtual ~TrainingFace() = default;

  virtual int layer_count() const = 0;
  // tokens [B, L] int32 -> [B, L, E]
  virtual mx::array embedded(const mx::array& tokens) const = 0;
  // [B, L, E] -> [B, L, E]
  virtual mx::array layer_output(int index, const mx::array& h) const = 0;
  // The last norm: [..., E] -> [..., E]
  virtual mx::array normed(const mx::array& h) const = 0;
  // Of what normed() gave, with adapters: [B, L, E] -> [B, L, V]
  virtual mx::array logits(const mx::array& normed) const = 0;
  virtual HeadParts head_parts() const = 0;
  // Whether rows of several texts are computed as if each were alone.
  virtual bool takes_packed_rows() const = 0;
};

}  // namespace mlxx::models
