#pragma once

#include <cstdint>
#include <vector>

#include "mlxx/core/parameters.h"

namespace mlxx {

// Tells whether the arrays of some parameters have been replaced, for
// CompiledFunctionOptions::stamp: cheap enough for every decode step. The
// parameters must outlive it. Two stamps are comparable while what was captured
// under the first one is still held, as a graph holds it.
class WeightsStamp {
 public:
  void add(const Parameter& parameter) {
    parameters_.push_back(&parameter);
  }
  uint64_t operator()() const;

 private:
  std::vector<const Parameter*> parameters_;
};

}  // namespace mlxx
