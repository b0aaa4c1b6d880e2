#pragma once

#include <cstdint>
#include <vector>

namespace mlxx::data {

// Consecutive tokens of a packed row that belong together: they see themselves,
// what is before them in the segment, and all of `parent`, which comes earlier
// in the row and is what its children have in common (a prompt with two
// answers). Nothing else.
struct Segment {
  int begin = 0;
  int end = 0;
  int parent = -1;  // index of a segment; -1: none
  int64_t sample = 0;

  bool operator==(const Segment&) const = default;
};

// What a step of training is given. Either `rows` rows of one sample each,
// padded on the right, or, if there are segments, one packed row; padding after
// the last segment belongs to none.
struct Batch {
  int rows = 0;
  int length = 0;
  std::vector<int32_t> tokens;  // [rows, length]; padding is 0
  // [rows, length]: 1 where the token is to be predicted from those before it.
  // Never for padding nor for the first token of a row or of a segment without
  // a parent. The first token of a segment with a parent is predicted from the
  // parent's last one.
  std::vector<uint8_t> targets;
  // Index in the data set: [rows]; of a packed row each of its samples once.
  std::vector<int64_t> samples;
  std::vector<Segment> segments;  // of the packed row
  // Preference data: indices of rows, or of segments, which are answers to the
  // same prompt. Their targets are the answers' tokens alone.
  struct Pair {
    int chosen = 0;
    int rejected = 0;
    bool operator==(const Pair&) const = default;
  };
  std::vector<Pair> pairs;

  int64_t target_count() const {
    int64_t count = 0;
    for (uint8_t target : targets) {
      count += target;
    }
    return count;
  }
};

}  // namespace mlxx::data
