// Several numbers that a thread loads and stores at once. Text that MLX compiles
// (core/custom_kernel.h).
#pragma once

namespace mlxx_wide {

// 16 bytes.
template <typename T, int N>
struct alignas(16) Numbers {
  T x[N];
};

template <typename T>
__device__ inline bool is_whole(const T* at) {
  return ((unsigned long long)at & 15) == 0;
}

// Numbers [first, first + N) of `count`, 0 past the end.
template <typename T, int N>
__device__ inline Numbers<T, N>
load(const T* from, long long first, long long count) {
  if (first + N <= count && is_whole(from + first)) {
    return *reinterpret_cast<const Numbers<T, N>*>(from + first);
  }
  Numbers<T, N> numbers;
  for (int i = 0; i < N; ++i) {
    numbers.x[i] = first + i < count ? from[first + i] : T(0.0f);
  }
  return numbers;
}

template <typename T, int N>
__device__ inline void
store(T* to, const Numbers<T, N>& numbers, long long first, long long count) {
  if (first + N <= count && is_whole(to + first)) {
    *reinterpret_cast<Numbers<T, N>*>(to + first) = numbers;
    return;
  }
  for (int i = 0; i < N && first + i < count; ++i) {
    to[first + i] = numbers.x[i];
  }
}

}  // namespace mlxx_wide
