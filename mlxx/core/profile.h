#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx {

// All evaluations of one kind of operation.
struct OpTime {
  std::string name;  // of the primitive: "Matmul"; ours: "CpuRmsNorm"
  int count = 0;
  double seconds = 0;
  // Of inputs and outputs together, as far as they have memory of their own.
  // An operation that reads a part of its input, or only renames it, moves
  // less.
  uint64_t bytes = 0;
};

struct Profile {
  std::vector<OpTime> ops;  // the slowest kind first, then by name

  double seconds() const;  // of all
  int count() const;       // of all

  // Adds the times of another profile, kind by kind.
  void add(const Profile& other);
};

// Evaluates the lazy graph of `outputs` one operation at a time, each waited
// for, and sums the times by kind. The results are those of eval(), and as
// with it what was already evaluated costs nothing. Every time includes what
// MLX needs to start one evaluation and to wait for it (profile_overhead()):
// the sum is more than a plain eval() takes, where that is hidden.
//
// What an operation throws comes out; the operations before it stay evaluated.
// MLX throws if the graph is being traced for compile().
Profile profile(const std::vector<mx::array>& outputs);

// Seconds that evaluating one operation that does nothing takes here, the
// median of some.
double profile_overhead();

}  // namespace mlxx
