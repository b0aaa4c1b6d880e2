#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx::cache {

// A cache taken apart, as it goes to disk or becomes rows of a batch.
struct StoredState {
  std::string kind;              // "dense", "rotating", ...
  std::vector<int64_t> numbers;  // what the kind needs beside arrays
  // Of attention and scans: [B, ...]. Values, not views into spare room.
  std::vector<mx::array> arrays;
  std::vector<StoredState> parts;
};

// bad_file naming `kind` unless the state is of it, with so many numbers (at
// least), arrays and parts.
void expect_stored(
    const StoredState& state,
    std::string_view kind,
    size_t numbers,
    size_t arrays,
    size_t parts = 0);

// Number `index`, as an int from `min` to `max`; bad_file if it is outside.
int stored_number(
    const StoredState& state,
    size_t index,
    int64_t min,
    int64_t max);

// bad_file unless both are [B, K, S, D] with the same B, K and S.
void expect_stored_tokens(
    const StoredState& state,
    const mx::array& keys,
    const mx::array& values);

}  // namespace mlxx::cache
