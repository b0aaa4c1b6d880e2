// Products of tiles of queries, keys and values in half precision, for
// text_attention.cuh. Text that MLX compiles (core/custom_kernel.h).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace mlxx_text_attention {

constexpr int kStep = 64;   // rows of what goes by
constexpr int kStay = 128;  // rows of what a block has: 16 for each of 8 warps
constexpr int kThreads = 256;
constexpr float kLog2E = 1.4426950408889634f;
#define MLXX_INFINITY __int_as_float(0x7f800000)

// x [B, H, L, D] of any strides, in numbers.
template <typename T>
struct Heads {
  const T* data;
  long long batch;
  long long head;
  long long row;
  long long column;
};

struct Sizes {
  int heads;
  int kv_heads;
  int length;
  float scale;
};

// What queries of kStep rows see: the least begin and the greatest end of the
// parent's tokens and of their own, then the greatest begin and the least end of
// their own.
struct Span {
  int parent_begin;
  int parent_end;
  int begin;
  int end;
  int all_begin;
  int all_end;
  int unused[2];

  __device__ bool meets(int first, int last) const {
    return (first < end && last > begin) ||
        (first < parent_end && last > parent_begin);
  }
  __device__ bool covers(int first, int last) const {
    return first >= all_begin && last <= all_end;
  }
};

__device__ inline bool sees(const int4& seen, int key) {
  return (key >= seen.z && key < seen.w) || (key >= seen.x && key < seen.y);
}

__device__ inline unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

template <typename T>
struct Products;

template <>
struct Products<__nv_bfloat16> {
  __device__ static unsigned pair(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<unsigned*>(&both);
  }
  __device__ static void
  add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct Products<__half> {
  __device__ static unsigned pair(float low, float high) {
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<unsigned*>(&both);
  }
  __device__ static void
  add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

__device__ inline void load_matrices(unsigned (&r)[4], const void* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at)));
}

__device__ inline void load_transposed(unsigned (&r)[4], const void* at) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(shared_address(at)));
}

// Rows of D numbers in shared memory. 8 numbers more, so that the same column
// of 8 rows lies in other banks.
template <int D>
constexpr int kPitch = D + 8;

template <int BYTES>
__device__ inline void copy_async(void* to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(
                   shared_address(to)),
               "l"(from),
               "n"(BYTES),
               "r"(there ? BYTES : 0));
}

__device__ inline void end_of_copies() {
  asm volatile("cp.async.commit_group;");
}

template <int LEFT>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

// Rows [first, first + ROWS) of one head; those past the end are 0.
template <typename T, int D, int ROWS>
__device__ void
load_rows(T* to, const Heads<T>& from, int batch, int head, int first, int length) {
  const T* data = from.data + batch * from.batch + head * from.head;
  constexpr int kChunks = D / 8;
  bool whole = from.column == 1 && from.row % 8 == 0 &&
      (reinterpret_cast<unsigned long long>(data) & 15) == 0;
  for (int i = threadIdx.x; i < ROWS * kChunks; i += kThreads) {
    int row = i / kChunks;
    int column = i % kChunks * 8;
    bool there = first + row < length;
    const T* source =
        data + (there ? first + row : 0) * from.row + column * from.column;
    T* target = to + row * kPitch<D> + column;
    if (whole) {
      copy_async<16>(target, source, there);
    } else {
      for (int k = 0; k < 8; ++k) {
        target[k] = there ? source[k * from.column] : T(0.0f);
      }
    }
  }
}

// c [16, 64] += rows of a [16, D] by 64 rows of b, as a @ b.T.
template <typename T, int D>
__device__ void
add_scores(float (&c)[kStep / 8][4], const T* a, const T* b, int lane) {
  const T* row = a + (lane & 15) * kPitch<D> + (lane >> 4) * 8;
  const T* other = b + ((lane & 7) + (lane >> 4) * 8) * kPitch<D> +
      ((lane >> 3) & 1) * 8;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    unsigned left[4];
    load_matrices(left, row + k);
#pragma unroll
    for (int n = 0; n < kStep / 16; ++n) {
      unsigned right[4];
      load_matrices(right, other + n * 16 * kPitch<D> + k);
      Products<T>::add(c[2 * n], left, right[0], right[1]);
      Products<T>::add(c[2 * n + 1], left, right[2], right[3]);
    }
  }
}

// c [16, D] += weights [16, 64] @ b [64, D]; `weights` as add_scores() has them.
template <typename T, int D>
__device__ void add_rows(
    float (&c)[D / 8][4],
    const float (&weights)[kStep / 8][4],
    const T* b,
    int lane) {
  const T* other = b + (lane & 15) * kPitch<D> + (lane >> 4) * 8;
#pragma unroll
  for (int k = 0; k < kStep / 16; ++k) {
    const float(&low)[4] = weights[2 * k];
    const float(&high)[4] = weights[2 * k + 1];
    unsigned left[4] = {
        Products<T>::pair(low[0], low[1]),
        Products<T>::pair(low[2], low[3]),
        Products<T>::pair(high[0], high[1]),
        Products<T>::pair(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      unsigned right[4];
      load_transposed(right, other + k * 16 * kPitch<D> + n * 16);
      Products<T>::add(c[2 * n], left, right[0], right[1]);
      Products<T>::add(c[2 * n + 1], left, right[2], right[3]);
    }
  }
}

template <int N>
__device__ inline void clear(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
  }
}

// Rows lane / 4 and 8 below it of c [16, D] times what belongs to each, to
// y [B, L, heads, D].
template <typename T, int D>
__device__ void store_rows(
    T* y,
    const float (&c)[D / 8][4],
    const float (&by)[2],
    int batch,
    int head,
    int heads,
    int first,
    int length,
    int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int row = first + lane / 4 + 8 * half;
    if (row < length) {
      T* at = y + (((long long)batch * length + row) * heads + head) * D +
          lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        *reinterpret_cast<unsigned*>(at + n * 8) = Products<T>::pair(
            c[n][2 * half] * by[half],
            c[n][2 * half + 1] * by[half]);
      }
    }
  }
}

}  // namespace mlxx_text_attention
