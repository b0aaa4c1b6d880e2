// Attention of whole texts on a GPU, its gradients included, against sums in
// double precision, and that it gives the same bits each time. With two
// numbers, LENGTH and HEAD SIZE: how long each pass takes, of 32 heads that
// share 8.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "mlxx/kernels/attention/text_attention.cuh"

namespace at = mlxx_text_attention;
using T = __nv_bfloat16;

#define CHECK(call)                                              \
  do {                                                           \
    cudaError_t error = (call);                                  \
    if (error != cudaSuccess) {                                  \
      std::printf("%s: %s\n", #call, cudaGetErrorString(error)); \
      std::exit(1);                                              \
    }                                                            \
  } while (0)

extern __shared__ __align__(16) char shared_bytes[];

template <int D>
__global__ void pass_forward(
    at::Heads<T> q,
    at::Heads<T> k,
    at::Heads<T> v,
    const int4* seen,
    const at::Span* spans,
    at::Sizes sizes,
    T* out,
    float* log_sums) {
  at::forward<T, D>(q, k, v, seen, spans, sizes, shared_bytes, out, log_sums);
}

template <int D>
__global__ void pass_query_gradients(
    at::Heads<T> q,
    at::Heads<T> k,
    at::Heads<T> v,
    at::Heads<T> out,
    at::Heads<T> d_out,
    const float* log_sums,
    const int4* seen,
    const at::Span* spans,
    at::Sizes sizes,
    T* d_q,
    float* deltas) {
  at::query_gradients<T, D>(
      q,
      k,
      v,
      out,
      d_out,
      log_sums,
      seen,
      spans,
      sizes,
      shared_bytes,
      d_q,
      deltas);
}

template <int D>
__global__ void pass_key_gradients(
    at::Heads<T> q,
    at::Heads<T> k,
    at::Heads<T> v,
    at::Heads<T> d_out,
    const float* log_sums,
    const float* deltas,
    const int4* seen,
    const at::Span* spans,
    at::Sizes sizes,
    T* d_k,
    T* d_v) {
  at::key_gradients<T, D>(
      q,
      k,
      v,
      d_out,
      log_sums,
      deltas,
      seen,
      spans,
      sizes,
      shared_bytes,
      d_k,
      d_v);
}

template <typename N>
N* device_copy(const std::vector<N>& from) {
  N* to = nullptr;
  CHECK(cudaMalloc(&to, from.size() * sizeof(N)));
  CHECK(cudaMemcpy(
      to,
      from.data(),
      from.size() * sizeof(N),
      cudaMemcpyHostToDevice));
  return to;
}

template <typename N>
std::vector<N> host_copy(const N* from, size_t count) {
  std::vector<N> to(count);
  CHECK(cudaMemcpy(to.data(), from, count * sizeof(N), cudaMemcpyDeviceToHost));
  return to;
}

struct Case {
  const char* name;
  int batch, heads, kv_heads, length, window;
  // Texts of a packed row: begin, end, parent.
  std::vector<std::array<int, 3>> texts;
};

std::vector<int4> seen_of(const Case& c) {
  std::vector<int4> seen(c.length);
  if (c.texts.empty()) {
    for (int i = 0; i < c.length; ++i) {
      int from = c.window > 0 ? std::max(0, i + 1 - c.window) : 0;
      seen[i] = make_int4(0, 0, from, i + 1);
    }
    return seen;
  }
  for (int i = 0; i < c.length; ++i) {
    seen[i] = make_int4(0, 0, 0, 0);
  }
  for (const auto& [begin, end, parent] : c.texts) {
    for (int i = begin; i < end; ++i) {
      seen[i] = make_int4(0, 0, begin, i + 1);
      if (parent >= 0) {
        seen[i].x = c.texts[parent][0];
        seen[i].y = c.texts[parent][1];
      }
    }
  }
  return seen;
}

std::vector<at::Span> spans_of(const std::vector<int4>& seen) {
  std::vector<at::Span> spans;
  int length = static_cast<int>(seen.size());
  for (int first = 0; first < length; first += at::kStep) {
    at::Span s{1 << 30, 0, 1 << 30, 0, 0, 1 << 30, {}};
    for (int i = first; i < std::min(length, first + at::kStep); ++i) {
      if (seen[i].y > seen[i].x) {
        s.parent_begin = std::min(s.parent_begin, seen[i].x);
        s.parent_end = std::max(s.parent_end, seen[i].y);
      }
      s.begin = std::min(s.begin, seen[i].z);
      s.end = std::max(s.end, seen[i].w);
      s.all_begin = std::max(s.all_begin, seen[i].z);
      s.all_end = std::min(s.all_end, seen[i].w);
    }
    spans.push_back(s);
  }
  return spans;
}

template <int D>
struct Run {
  Case c;
  T *q, *k, *v, *d_out, *out, *d_q, *d_k, *d_v;
  float *log_sums, *deltas;
  int4* seen;
  at::Span* spans;
  std::vector<T> host[4];

  static constexpr int kBytes = at::kSharedBytes<D>;

  static std::vector<T> random(size_t count, int seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<T> x(count);
    for (auto& one : x) {
      one = __float2bfloat16(normal(generator));
    }
    return x;
  }
  template <typename N>
  static N* made(size_t count) {
    N* x = nullptr;
    CHECK(cudaMalloc(&x, count * sizeof(N)));
    return x;
  }

  explicit Run(const Case& wanted) : c(wanted) {
    size_t queries = size_t(c.batch) * c.heads * c.length * D;
    size_t keys = size_t(c.batch) * c.kv_heads * c.length * D;
    host[0] = random(queries, 1);
    host[1] = random(keys, 2);
    host[2] = random(keys, 3);
    host[3] = random(queries, 4);
    q = device_copy(host[0]);
    k = device_copy(host[1]);
    v = device_copy(host[2]);
    d_out = device_copy(host[3]);
    out = made<T>(queries);
    d_q = made<T>(queries);
    d_k = made<T>(keys);
    d_v = made<T>(keys);
    log_sums = made<float>(queries / D);
    deltas = made<float>(queries / D);
    auto s = seen_of(c);
    seen = device_copy(s);
    spans = device_copy(spans_of(s));
    for (auto* one :
         {(const void*)pass_forward<D>,
          (const void*)pass_query_gradients<D>,
          (const void*)pass_key_gradients<D>}) {
      CHECK(cudaFuncSetAttribute(
          one,
          cudaFuncAttributeMaxDynamicSharedMemorySize,
          at::kSharedBytes<D>));
    }
  }

  // [B, L, heads, D], as projections leave them.
  at::Heads<T> view(const T* x, int heads) const {
    return {x, (long long)c.length * heads * D, D, (long long)heads * D, 1};
  }
  at::Sizes sizes() const {
    return {c.heads, c.kv_heads, c.length, 1.0f / std::sqrt(float(D))};
  }
  int tiles() const {
    return (c.length + at::kStay - 1) / at::kStay;
  }
  void run_forward() {
    pass_forward<D><<<dim3(c.batch * c.heads, tiles()), at::kThreads, kBytes>>>(
        view(q, c.heads),
        view(k, c.kv_heads),
        view(v, c.kv_heads),
        seen,
        spans,
        sizes(),
        out,
        log_sums);
    CHECK(cudaGetLastError());
  }
  void run_queries() {
    pass_query_gradients<D>
        <<<dim3(c.batch * c.heads, tiles()), at::kThreads, kBytes>>>(
            view(q, c.heads),
            view(k, c.kv_heads),
            view(v, c.kv_heads),
            view(out, c.heads),
            view(d_out, c.heads),
            log_sums,
            seen,
            spans,
            sizes(),
            d_q,
            deltas);
    CHECK(cudaGetLastError());
  }
  void run_keys() {
    pass_key_gradients<D>
        <<<dim3(c.batch * c.kv_heads, tiles()), at::kThreads, kBytes>>>(
            view(q, c.heads),
            view(k, c.kv_heads),
            view(v, c.kv_heads),
            view(d_out, c.heads),
            log_sums,
            deltas,
            seen,
            spans,
            sizes(),
            d_k,
            d_v);
    CHECK(cudaGetLastError());
  }
};

bool sees(const int4& s, int key) {
  return (key >= s.z && key < s.w) || (key >= s.x && key < s.y);
}

double largest(const std::vector<double>& wanted, const std::vector<T>& found) {
  double error = 0, most = 1e-9;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error = std::max(error, std::abs(wanted[i] - __bfloat162float(found[i])));
    most = std::max(most, std::abs(wanted[i]));
    if (std::isnan(__bfloat162float(found[i]))) {
      return 1e9;
    }
  }
  return error / most;
}

template <int D>
bool is_right(const Case& c) {
  Run<D> run(c);
  int length = c.length, group = c.heads / c.kv_heads;
  auto seen = seen_of(c);
  double scale = 1 / std::sqrt(double(D));
  size_t queries = size_t(c.batch) * c.heads * length * D;
  std::vector<double> out(queries), d_q(queries), d_k(queries / group),
      d_v(queries / group);
  auto x = [&](int which, int heads, int b, int h, int i, int d) -> double {
    return __bfloat162float(
        run.host[which][((size_t(b) * length + i) * heads + h) * D + d]);
  };
  auto place = [&](int heads, int b, int h, int i, int d) {
    return ((size_t(b) * length + i) * heads + h) * D + d;
  };
  std::vector<double> p(length), d_p(length);
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads; ++h) {
      int g = h / group;
      for (int i = 0; i < length; ++i) {
        double sum = 0, delta = 0;
        for (int j = 0; j < length; ++j) {
          p[j] = d_p[j] = 0;
          if (!sees(seen[i], j)) {
            continue;
          }
          double s = 0;
          for (int d = 0; d < D; ++d) {
            s += x(0, c.heads, b, h, i, d) * x(1, c.kv_heads, b, g, j, d);
            d_p[j] += x(3, c.heads, b, h, i, d) * x(2, c.kv_heads, b, g, j, d);
          }
          sum += p[j] = std::exp(s * scale);
        }
        for (int j = 0; j < length && sum > 0; ++j) {
          p[j] /= sum;
          delta += p[j] * d_p[j];
        }
        for (int j = 0; j < length; ++j) {
          double d_s = p[j] * (d_p[j] - delta) * scale;
          for (int d = 0; d < D && p[j] != 0; ++d) {
            out[place(c.heads, b, h, i, d)] +=
                p[j] * x(2, c.kv_heads, b, g, j, d);
            d_q[place(c.heads, b, h, i, d)] +=
                d_s * x(1, c.kv_heads, b, g, j, d);
            d_k[place(c.kv_heads, b, g, j, d)] +=
                d_s * x(0, c.heads, b, h, i, d);
            d_v[place(c.kv_heads, b, g, j, d)] +=
                p[j] * x(3, c.heads, b, h, i, d);
          }
        }
      }
    }
  }
  std::vector<T> results[2][4];
  for (auto& result : results) {
    run.run_forward();
    run.run_queries();
    run.run_keys();
    CHECK(cudaDeviceSynchronize());
    result[0] = host_copy(run.out, queries);
    result[1] = host_copy(run.d_q, queries);
    result[2] = host_copy(run.d_k, queries / group);
    result[3] = host_copy(run.d_v, queries / group);
  }
  double errors[4] = {
      largest(out, results[0][0]),
      largest(d_q, results[0][1]),
      largest(d_k, results[0][2]),
      largest(d_v, results[0][3])};
  bool same = true, near = true;
  for (int i = 0; i < 4; ++i) {
    same = same &&
        std::memcmp(
            results[0][i].data(),
            results[1][i].data(),
            results[0][i].size() * sizeof(T)) == 0;
    near = near && errors[i] < 0.01;
  }
  std::printf(
      "%s, heads of %d: errors %.4f %.4f %.4f %.4f%s%s\n",
      c.name,
      D,
      errors[0],
      errors[1],
      errors[2],
      errors[3],
      near ? "" : " TOO LARGE",
      same ? "" : " OTHER BITS");
  return same && near;
}

template <int D>
void time_passes(int length) {
  Run<D> run({"", 1, 32, 8, length, 0, {}});
  cudaEvent_t from, to;
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  // Products of one pass are scores below the diagonal by D numbers.
  double product = double(length) * length * D * 32;
  auto time = [&](const char* name, int products, auto pass) {
    pass();
    CHECK(cudaEventRecord(from));
    for (int i = 0; i < 5; ++i) {
      pass();
    }
    CHECK(cudaEventRecord(to));
    CHECK(cudaEventSynchronize(to));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from, to));
    std::printf(
        "%d tokens, heads of %d, %s: %.3f ms, %.0f TFLOP/s\n",
        length,
        D,
        name,
        ms / 5,
        products * product / (ms / 5) / 1e9);
  };
  time("forward", 2, [&] { run.run_forward(); });
  time("gradients of queries", 3, [&] { run.run_queries(); });
  time("gradients of keys and values", 4, [&] { run.run_keys(); });
}

int main(int argc, char** argv) {
  if (argc > 2) {
    int length = std::atoi(argv[1]);
    std::atoi(argv[2]) == 64 ? time_passes<64>(length)
                             : time_passes<128>(length);
    return 0;
  }
  std::vector<Case> cases = {
      {"one text", 1, 4, 2, 256, 0, {}},
      {"two rows of 200", 2, 3, 1, 200, 0, {}},
      {"a window", 1, 2, 2, 333, 70, {}},
      {"three packed texts",
       1,
       2,
       1,
       300,
       0,
       {{0, 100, -1}, {100, 150, 0}, {150, 290, -1}}},
      {"17 tokens", 1, 2, 1, 17, 0, {}},
  };
  bool right = true;
  for (const auto& c : cases) {
    right = is_right<128>(c) && right;
    right = is_right<64>(c) && right;
    right = is_right<96>(c) && right;
  }
  std::printf(right ? "right\n" : "WRONG\n");
  return right ? 0 : 1;
}
