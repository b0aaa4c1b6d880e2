// Attention of whole texts and its gradients. Text that MLX compiles
// (core/custom_kernel.h).
//
// Every sum has one order and there are no atomics, so results have the same
// bits each time: queries' gradients are summed over keys by whoever has the
// queries, those of keys and values over queries and the heads of their group by
// whoever has the keys; the scores are computed for each. Dao, "FlashAttention-2".
#pragma once
#include "text_attention_tiles.cuh"

namespace mlxx_text_attention {

// Bytes of shared memory of a block of any pass.
template <int D>
constexpr int kSharedBytes = 2 * (kStay + 2 * kStep) * kPitch<D> * 2 +
    2 * kStep * (2 * 4 + 16);

// What passes by a block, in two places by turns.
template <typename T, int D>
struct Places {
  T* first;   // of kStay rows
  T* second;  // the same
  T* passing;
  char* numbers;

  __device__ explicit Places(char* shared)
      : first(reinterpret_cast<T*>(shared)),
        second(first + kStay * kPitch<D>),
        passing(second + kStay * kPitch<D>),
        numbers(reinterpret_cast<char*>(passing + 4 * kStep * kPitch<D>)) {}

  __device__ T* step(int place, int which) const {
    return passing + (2 * place + which) * kStep * kPitch<D>;
  }
  __device__ int4* seen(int place) const {
    return reinterpret_cast<int4*>(numbers) + place * kStep;
  }
  __device__ float* number(int place, int which) const {
    return reinterpret_cast<float*>(numbers + 2 * kStep * 16) +
        (2 * place + which) * kStep;
  }
};

// Tiles of keys that a tile of kStay queries meets, in order.
struct KeySteps {
  const Span* spans;  // of its two halves
  int count;
  int steps;

  __device__ KeySteps(const Span* all, int first, int length)
      : spans(all + first / kStep),
        count(first + kStep < length ? 2 : 1),
        steps((length + kStep - 1) / kStep) {}
  __device__ bool meets(int step) const {
    int key = step * kStep;
    return spans[0].meets(key, key + kStep) ||
        (count == 2 && spans[1].meets(key, key + kStep));
  }
  __device__ int next(int step) const {
    do {
      ++step;
    } while (step < steps && !meets(step));
    return step;
  }
  __device__ bool covers(int step) const {
    int key = step * kStep;
    return spans[0].covers(key, key + kStep) && count == 2 &&
        spans[1].covers(key, key + kStep);
  }
};

// out [B, L, H, D] and its log-sums [B, H, L]; a query that sees nothing has 0
// and infinity. A block: kStay queries (blockIdx.y, the last ones first) of one
// head of one row (blockIdx.x).
template <typename T, int D>
__device__ void forward(
    Heads<T> q,
    Heads<T> k,
    Heads<T> v,
    const int4* seen,
    const Span* spans,
    Sizes sizes,
    char* shared,
    T* out,
    float* log_sums) {
  Places<T, D> places(shared);
  int lane = threadIdx.x & 31;
  int warp = threadIdx.x / 32;
  int batch = blockIdx.x / sizes.heads;
  int head = blockIdx.x % sizes.heads;
  int kv_head = head / (sizes.heads / sizes.kv_heads);
  int first = (gridDim.y - 1 - blockIdx.y) * kStay;
  KeySteps steps(spans, first, sizes.length);

  auto load = [&](int step, int place) {
    int key = step * kStep;
    load_rows<T, D, kStep>(
        places.step(place, 0), k, batch, kv_head, key, sizes.length);
    load_rows<T, D, kStep>(
        places.step(place, 1), v, batch, kv_head, key, sizes.length);
  };
  load_rows<T, D, kStay>(places.first, q, batch, head, first, sizes.length);
  int step = steps.next(-1);
  if (step < steps.steps) {
    load(step, 0);
  }
  end_of_copies();

  int mine = first + warp * 16 + lane / 4;
  int4 rows[2];
  for (int half = 0; half < 2; ++half) {
    int row = mine + 8 * half;
    rows[half] = row < sizes.length ? seen[row] : make_int4(0, 0, 0, 0);
  }
  float by = sizes.scale * kLog2E;
  float most[2] = {-3.0e38f, -3.0e38f};
  float sum[2] = {0.0f, 0.0f};
  float c[D / 8][4];
  clear(c);
  int place = 0;
  while (step < steps.steps) {
    int following = steps.next(step);
    if (following < steps.steps) {
      load(following, place ^ 1);
    }
    end_of_copies();
    wait_for_copies<1>();
    __syncthreads();
    float s[kStep / 8][4];
    clear(s);
    add_scores<T, D>(
        s, places.first + warp * 16 * kPitch<D>, places.step(place, 0), lane);
    bool whole = steps.covers(step);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = most[half];
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = s[n][2 * half + i];
          x *= by;
          int key = step * kStep + n * 8 + lane % 4 * 2 + i;
          if (!whole && !sees(rows[half], key)) {
            x = -MLXX_INFINITY;
          }
          top = fmaxf(top, x);
        }
      }
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      float shrink = exp2f(most[half] - top);
      most[half] = top;
      float more = 0.0f;
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = s[n][2 * half + i];
          x = exp2f(x - top);
          more += x;
        }
      }
      sum[half] = sum[half] * shrink + more;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        c[n][2 * half] *= shrink;
        c[n][2 * half + 1] *= shrink;
      }
    }
    add_rows<T, D>(c, s, places.step(place, 1), lane);
    __syncthreads();
    step = following;
    place ^= 1;
  }
  wait_for_copies<0>();
  float divided[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float all = sum[half];
    all += __shfl_xor_sync(0xffffffffu, all, 1);
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    divided[half] = all > 0.0f ? 1.0f / all : 0.0f;
    int row = mine + 8 * half;
    if (lane % 4 == 0 && row < sizes.length) {
      log_sums[(long long)blockIdx.x * sizes.length + row] =
          all > 0.0f ? most[half] / kLog2E + logf(all) : MLXX_INFINITY;
    }
  }
  store_rows<T, D>(
      out,
      c,
      divided,
      batch,
      head,
      sizes.heads,
      first + warp * 16,
      sizes.length,
      lane);
}

// Gradients of queries [B, L, H, D], and of each query the product of its output
// and the output's gradient, [B, H, L]. Blocks as forward().
template <typename T, int D>
__device__ void query_gradients(
    Heads<T> q,
    Heads<T> k,
    Heads<T> v,
    Heads<T> out,
    Heads<T> d_out,
    const float* log_sums,
    const int4* seen,
    const Span* spans,
    Sizes sizes,
    char* shared,
    T* d_q,
    float* deltas) {
  Places<T, D> places(shared);
  int lane = threadIdx.x & 31;
  int warp = threadIdx.x / 32;
  int batch = blockIdx.x / sizes.heads;
  int head = blockIdx.x % sizes.heads;
  int kv_head = head / (sizes.heads / sizes.kv_heads);
  int first = (gridDim.y - 1 - blockIdx.y) * kStay;
  KeySteps steps(spans, first, sizes.length);

  auto load = [&](int step, int place) {
    int key = step * kStep;
    load_rows<T, D, kStep>(
        places.step(place, 0), k, batch, kv_head, key, sizes.length);
    load_rows<T, D, kStep>(
        places.step(place, 1), v, batch, kv_head, key, sizes.length);
  };
  load_rows<T, D, kStay>(places.first, q, batch, head, first, sizes.length);
  load_rows<T, D, kStay>(
      places.second, d_out, batch, head, first, sizes.length);
  end_of_copies();
  int step = steps.next(-1);
  if (step < steps.steps) {
    load(step, 0);
  }
  end_of_copies();
  wait_for_copies<1>();
  __syncthreads();

  const T* d_rows = places.second + warp * 16 * kPitch<D>;
  const T* outs = out.data + batch * out.batch + head * out.head;
  int mine = first + warp * 16 + lane / 4;
  int4 rows[2];
  float log_sum[2] = {0.0f, 0.0f};
  float delta[2];
  for (int half = 0; half < 2; ++half) {
    int row = mine + 8 * half;
    bool there = row < sizes.length;
    rows[half] = there ? seen[row] : make_int4(0, 0, 0, 0);
    long long at = (long long)blockIdx.x * sizes.length + row;
    float product = 0.0f;
    if (there) {
      log_sum[half] = log_sums[at] * kLog2E;
      const T* d_row = d_rows + (lane / 4 + 8 * half) * kPitch<D>;
      for (int i = lane % 4; i < D; i += 4) {
        product +=
            float(d_row[i]) * float(outs[row * out.row + i * out.column]);
      }
    }
    product += __shfl_xor_sync(0xffffffffu, product, 1);
    product += __shfl_xor_sync(0xffffffffu, product, 2);
    delta[half] = product;
    if (there && lane % 4 == 0) {
      deltas[at] = product;
    }
  }

  float by = sizes.scale * kLog2E;
  float c[D / 8][4];
  clear(c);
  int place = 0;
  while (step < steps.steps) {
    int following = steps.next(step);
    if (following < steps.steps) {
      load(following, place ^ 1);
    }
    end_of_copies();
    wait_for_copies<1>();
    __syncthreads();
    const T* keys = places.step(place, 0);
    float s[kStep / 8][4];
    clear(s);
    add_scores<T, D>(s, places.first + warp * 16 * kPitch<D>, keys, lane);
    float d_p[kStep / 8][4];
    clear(d_p);
    add_scores<T, D>(d_p, d_rows, places.step(place, 1), lane);
    bool whole = steps.covers(step);
#pragma unroll
    for (int n = 0; n < kStep / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int key = step * kStep + n * 8 + lane % 4 * 2 + (i & 1);
        float p = exp2f(fmaf(s[n][i], by, -log_sum[i / 2]));
        if (!whole && !sees(rows[i / 2], key)) {
          p = 0.0f;
        }
        s[n][i] = p * (d_p[n][i] - delta[i / 2]);
      }
    }
    add_rows<T, D>(c, s, keys, lane);
    __syncthreads();
    step = following;
    place ^= 1;
  }
  wait_for_copies<0>();
  float scales[2] = {sizes.scale, sizes.scale};
  store_rows<T, D>(
      d_q,
      c,
      scales,
      batch,
      head,
      sizes.heads,
      first + warp * 16,
      sizes.length,
      lane);
}

// Gradients of keys and values, [B, L, K, D]. A block: kStay keys (blockIdx.y)
// of one head of one row (blockIdx.x), with all heads of queries that share it.
template <typename T, int D>
__device__ void key_gradients(
    Heads<T> q,
    Heads<T> k,
    Heads<T> v,
    Heads<T> d_out,
    const float* log_sums,
    const float* deltas,
    const int4* seen,
    const Span* spans,
    Sizes sizes,
    char* shared,
    T* d_k,
    T* d_v) {
  Places<T, D> places(shared);
  int lane = threadIdx.x & 31;
  int warp = threadIdx.x / 32;
  int group = sizes.heads / sizes.kv_heads;
  int batch = blockIdx.x / sizes.kv_heads;
  int kv_head = blockIdx.x % sizes.kv_heads;
  int first = blockIdx.y * kStay;
  int steps = (sizes.length + kStep - 1) / kStep;
  int from = first / kStep;
  int count = steps - from;

  // Steps of all heads in one row.
  auto next = [&](int at) {
    do {
      ++at;
    } while (at < group * count &&
             !spans[from + at % count].meets(first, first + kStay));
    return at;
  };
  auto load = [&](int at, int place) {
    int head = kv_head * group + at / count;
    int query = (from + at % count) * kStep;
    load_rows<T, D, kStep>(
        places.step(place, 0), q, batch, head, query, sizes.length);
    load_rows<T, D, kStep>(
        places.step(place, 1), d_out, batch, head, query, sizes.length);
    int row = threadIdx.x % kStep;
    bool there = query + row < sizes.length;
    int source = there ? query + row : 0;
    long long of_head =
        ((long long)batch * sizes.heads + head) * sizes.length + source;
    switch (threadIdx.x / kStep) {
      case 0:
        copy_async<4>(places.number(place, 0) + row, log_sums + of_head, there);
        break;
      case 1:
        copy_async<4>(places.number(place, 1) + row, deltas + of_head, there);
        break;
      case 2:
        copy_async<16>(places.seen(place) + row, seen + source, there);
        break;
    }
  };
  load_rows<T, D, kStay>(places.first, k, batch, kv_head, first, sizes.length);
  load_rows<T, D, kStay>(places.second, v, batch, kv_head, first, sizes.length);
  int at = next(-1);
  if (at < group * count) {
    load(at, 0);
  }
  end_of_copies();

  int mine = first + warp * 16 + lane / 4;
  float by = sizes.scale * kLog2E;
  float c_k[D / 8][4];
  float c_v[D / 8][4];
  clear(c_k);
  clear(c_v);
  int place = 0;
  while (at < group * count) {
    int following = next(at);
    if (following < group * count) {
      load(following, place ^ 1);
    }
    end_of_copies();
    wait_for_copies<1>();
    __syncthreads();
    const T* queries = places.step(place, 0);
    const T* d_outs = places.step(place, 1);
    const float* log_sum = places.number(place, 0);
    const float* delta = places.number(place, 1);
    const int4* rows = places.seen(place);
    // Scores of keys by queries.
    float p[kStep / 8][4];
    clear(p);
    add_scores<T, D>(p, places.first + warp * 16 * kPitch<D>, queries, lane);
    bool whole = spans[from + at % count].covers(first, first + kStay);
#pragma unroll
    for (int n = 0; n < kStep / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int query = n * 8 + lane % 4 * 2 + (i & 1);
        float x = exp2f(fmaf(p[n][i], by, -log_sum[query] * kLog2E));
        if (!whole && !sees(rows[query], mine + i / 2 * 8)) {
          x = 0.0f;
        }
        p[n][i] = x;
      }
    }
    add_rows<T, D>(c_v, p, d_outs, lane);
    float d_p[kStep / 8][4];
    clear(d_p);
    add_scores<T, D>(
        d_p, places.second + warp * 16 * kPitch<D>, d_outs, lane);
#pragma unroll
    for (int n = 0; n < kStep / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int query = n * 8 + lane % 4 * 2 + (i & 1);
        p[n][i] *= d_p[n][i] - delta[query];
      }
    }
    add_rows<T, D>(c_k, p, queries, lane);
    __syncthreads();
    at = following;
    place ^= 1;
  }
  wait_for_copies<0>();
  float scales[2] = {sizes.scale, sizes.scale};
  float ones[2] = {1.0f, 1.0f};
  int row = first + warp * 16;
  store_rows<T, D>(
      d_k, c_k, scales, batch, kv_head, sizes.kv_heads, row, sizes.length, lane);
  store_rows<T, D>(
      d_v, c_v, ones, batch, kv_head, sizes.kv_heads, row, sizes.length, lane);
}

}  // namespace mlxx_text_attention
