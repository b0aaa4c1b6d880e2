#pragma once

#include <cstring>

#include "mlxx/kernels/recurrent_kernels.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// Shares the lanes of an op that carries a state along the tokens among the
// threads: calls part(row, head, lane) for every head of every row and every
// lane that begins kLanesPerTask of its `lanes`. With fewer than `few_steps`
// tasks times tokens one thread does it all.
template <typename Part>
void for_each_lane_task(
    const Selection& selection,
    int64_t rows,
    int64_t heads,
    int64_t lanes,
    int64_t tokens,
    int64_t few_steps,
    const Part& part) {
  int64_t blocks = (lanes + kLanesPerTask - 1) / kLanesPerTask;
  int64_t tasks = rows * heads * blocks;
  bool few = tasks * tokens < few_steps;
  for_each_row_range(
      selection,
      tasks,
      few ? tasks + 1 : 2,
      [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) {
          auto index = static_cast<int64_t>(i);
          part(
              index / blocks / heads,
              index / blocks % heads,
              index % blocks * kLanesPerTask);
        }
      });
}

// `lanes` numbers from each of `rows` rows that are `stride` apart; nothing to
// do where the state is updated in place.
inline void copy_lanes(
    const float* from,
    float* to,
    int64_t rows,
    int64_t stride,
    int64_t lanes) {
  if (from == to) {
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(
        to + i * stride,
        from + i * stride,
        static_cast<size_t>(lanes) * sizeof(float));
  }
}

}  // namespace mlxx::kernels
