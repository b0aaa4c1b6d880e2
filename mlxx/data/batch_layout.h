#pragma once

#include <cstdint>
#include <span>

#include "mlxx/data/batch.h"
#include "mlxx/data/sample_reader.h"

namespace mlxx::data {

// A sample of a batch, by its index in the data set.
struct BatchSample {
  int64_t index;
  const TokenizedSample& sample;
};

// Lengths of rows are multiples of this, so that few shapes occur.
constexpr int kRowMultiple = 32;

// One row for each sample, two for each pair (chosen, rejected), on the right
// padded to a multiple of kRowMultiple but not beyond `max_length`.
Batch padded_batch(std::span<const BatchSample> samples, int max_length);

// One row of segments, at most `row_tokens` long; its length is one of few. A
// pair is its prompt once with two children, or without `share_prompts` two
// segments.
Batch packed_batch(
    std::span<const BatchSample> samples,
    int row_tokens,
    bool share_prompts);

// What packed_batch() takes up for one sample.
int32_t packed_tokens(const TokenizedSample& sample, bool share_prompts);
// The longest of the rows of padded_batch().
int32_t row_tokens(const TokenizedSample& sample);

}  // namespace mlxx::data
