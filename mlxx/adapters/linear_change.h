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
  // `weight`: of the layer, [out, in], which the shapes must fit.
  LinearChange(
      const LowRank& change,
      const Parameter& weight,
      const kernels::Selection& selection);

  bool is_dora() const {
    return gain_.has_value();
  }
  // scale * (x @ a) @ b, in x's dtype.
  mx::array delta(const mx::array& x) const;
  // DoRA: of x @ W.T + delta, without a bias yet.
  mx::array gained(const mx::array& y) const;
  // For a decoder that runs as one program; null where there is none.
  const std::shared_ptr<const kernels::LowRankChange>& in_program() const {
    return in_program_;
  }
  size_t nbytes() const;

 private:
  mx::array a_;                                    // [in, r]
  mx::array b_;                                    // [r, out]
  std::shared_ptr<const PackedWeights> packed_a_;  // both or none
  std::shared_ptr<const PackedWeights> packed_b_;
  float scale_;
  std::optional<mx::array> gain_;  // [out] float32
  std::shared_ptr<const kernels::LowRankChange> in_program_;
};

// The layer's weight as a dense matrix [out, in].
mx::array dense_weight(const Parameter& weight);

}  // namespace mlxx::adapters
