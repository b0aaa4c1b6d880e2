#pragma once

#include <cstdint>
#include <vector>

#include "mlxx/kernels/attention/training_attention.h"

namespace mlxx::kernels {

// The tokens that one query sees: of its parent, then of its own segment. Both
// may be empty, not together.
struct SeenTokens {
  int32_t parent_begin = 0;
  int32_t parent_end = 0;
  int32_t begin = 0;
  int32_t end = 0;  // the query itself is the last one
};

// Of every token of a row. invalid_request as training_attention().
std::vector<SeenTokens>
seen_tokens(const std::vector<RowSegment>& segments, int window, int length);

}  // namespace mlxx::kernels
