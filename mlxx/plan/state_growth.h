#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mlxx/models/model.h"

namespace mlxx::plan {

// How the decoding state of one row grows with its tokens, in the layers that
// keep it the same way.
struct StateGrowth {
  std::string kind;        // "blocks", "dense", "window", "chunk", "fixed"
  int layers = 0;          // entries of the model's cache list
  size_t fixed_bytes = 0;  // however many tokens
  size_t token_bytes = 0;  // for each token that is kept
  int step = 1;            // tokens for which room is made at once
  int most_tokens = 0;     // that are kept; 0: all

  // With `tokens` in it, of which the newest `chunk` were appended at once:
  // windows hold those beside what the first of them sees.
  size_t bytes(int tokens, int chunk = 1) const;
};

// By kind, in the order of the layers. The model may be one without weights
// (LoadOptions::sizes_only); nothing is evaluated.
std::vector<StateGrowth> state_growth(const models::Model& model);

}  // namespace mlxx::plan
