#pragma once

#include <memory>
#include <optional>

#include "mlxx/adapters/adapter_file.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/decode_step/low_rank_change.h"
#include "mlxx/kernels/select.h"

namespace mlxx::adapters {

// What one adapter does to one linear layer of a loaded model, in the form in
// which it is computed: by our CPU kernels where the weights are, so that a
// row's bits are its own, else by plain operations in the reference's order.
class LinearChange {
 public:
  // What it is kept for; a decoder's program is computed with our CPU kernels.
  enum class Use { layers, program };

  // `weight`: of the layer, [out, in], which the shapes must fit.
  LinearChange(
      const LowRank& change,
      const Parameter& weight,
      const kernels::Selection& selection,
      Use use);

  bool is_dora() const {
    return gain_.has_value();
  }
  // scale * (x @ a) @ b, in x's dtype. What is kept for a program is packed
  // for it the first time.
  mx::array delta(const mx::array& x) const;
  // DoRA: of x @ W.T + delta, without a bias yet.
  mx::array gained(const mx::array& y) const;
  // Null if it is kept for layers.
  const std::shared_ptr<const kernels::LowRankChange>& in_program() const {
    return in_program_;
  }
  size_t nbytes() const;

 private:
  void pack() const;

  kernels::Selection selection_;
  // Not filled while they are packed. One thread, MLX's, uses them.
  mutable mx::array a_;                                    // [in, r]
  mutable mx::array b_;                                    // [r, out]
  mutable std::shared_ptr<const PackedWeights> packed_a_;  // both or none
  mutable std::shared_ptr<const PackedWeights> packed_b_;
  mutable bool is_packed_ = false;  // or need not be
  float scale_;
  std::optional<mx::array> gain_;  // [out] float32
  std::shared_ptr<const kernels::LowRankChange> in_program_;
};

// The layer's weight as a dense matrix [out, in].
mx::array dense_weight(const Parameter& weight);

}  // namespace mlxx::adapters
