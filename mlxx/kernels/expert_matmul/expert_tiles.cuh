// Which rows, sorted by expert, a block multiplies. Text that MLX compiles
// (core/custom_kernel.h).
#pragma once

namespace mlxx_expert_tiles {

// experts [rows], never falling. tiles [most][3]: expert, first row, rows, of
// at most `height` rows of one expert each; those that are not needed have none.
// One block; shared [matrices + 1].
__device__ inline void find(
    const int* experts,
    int rows,
    int matrices,
    int height,
    int most,
    int* shared,
    int* tiles) {
  // Where each expert's rows begin.
  for (int e = threadIdx.x; e <= matrices; e += blockDim.x) {
    int low = 0;
    int high = rows;
    while (low < high) {
      int middle = (low + high) / 2;
      if (experts[middle] < e) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    shared[e] = low;
  }
  for (int i = threadIdx.x; i < most; i += blockDim.x) {
    tiles[i * 3 + 2] = 0;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < matrices; e += blockDim.x) {
    int count = shared[e + 1] - shared[e];
    if (count == 0) {
      continue;
    }
    int before = 0;  // tiles of the experts before
    for (int i = 0; i < e; ++i) {
      before += (shared[i + 1] - shared[i] + height - 1) / height;
    }
    for (int at = 0; at < count; at += height, ++before) {
      tiles[before * 3] = e;
      tiles[before * 3 + 1] = shared[e] + at;
      tiles[before * 3 + 2] = min(height, count - at);
    }
  }
}

}  // namespace mlxx_expert_tiles
