#pragma once

#include "mlxx/adapters/adapter_file.h"
#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::adapters {

// What one LoRA adapter does to the experts of a layer; computed as
// LinearChange says.
class ExpertChange {
 public:
  // `change`: a [experts, r, in], b [experts, out, r].
  ExpertChange(const LowRank& change, const kernels::Selection& selection);

  // Arguments as kernels::expert_matmul has them; in x's dtype.
  mx::array delta(const mx::array& x, const mx::array& indices, bool sorted)
      const;
  size_t nbytes() const {
    return a_.nbytes() + b_.nbytes();
  }

 private:
  Parameter a_;
  Parameter b_;
  float scale_;
};

}  // namespace mlxx::adapters
