#pragma once

#include <memory>
#include <optional>

#include "mlxx/adapters/adapter_file.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::adapters {

// What one adapter does to an embedding, also where it is the output head;
// computed as LinearChange says. Reference: mlx_lm/tuner/{lora,dora}.py.
class EmbeddingChange {
 public:
  // `change`: a [count, r], b [r, size], magnitude [count].
  EmbeddingChange(
      const LowRank& change,
      const Parameter& table,
      const kernels::Selection& selection);

  bool is_dora() const {
    return magnitude_.has_value();
  }
  // From what the table has there, [..., size].
  mx::array rows(const mx::array& ids, const mx::array& plain) const;
  // From x [..., size] and the table's own product with it, [..., count].
  mx::array head(const mx::array& x, const mx::array& plain) const;
  size_t nbytes() const;

 private:
  mx::array a_;
  mx::array b_;
  // All or none: a as [count, r], b as [r, size] and as [size, r].
  std::shared_ptr<const PackedWeights> packed_a_;
  std::shared_ptr<const PackedWeights> packed_b_;
  std::shared_ptr<const PackedWeights> packed_turned_b_;
  float scale_;
  std::optional<mx::array> magnitude_;  // [count]
  std::optional<mx::array> gain_;       // [count], of the head
};

}  // namespace mlxx::adapters
