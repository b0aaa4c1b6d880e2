// Products as training needs them, in both directions, as lazy arrays: with
// what MLX adds and with rounding to the dtype of the result.
#include <fmt/format.h>

#include <functional>
#include <optional>

#include "benchmarks/kernels/workbench.h"
#include "mlxx/core/dtype.h"
#include "mlxx/kernels/matmul/matmul.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

namespace mlxx::benchmarks {
namespace {

struct Shape {
  int out;
  int in;
};

const Shape kShapes[] = {
    // SmolLM2-135M
    {576, 576},
    {1536, 576},
    {576, 1536},
    // Llama 3.2 1B
    {2048, 2048},
    {8192, 2048},
    {2048, 8192},
    // Adapters of rank 8 and 64
    {8, 2048},
    {2048, 8},
    {64, 2048},
    {2048, 64},
};
constexpr int kTokens[] = {512, 2048};
const mx::Dtype kDtypes[] = {mx::float32, mx::bfloat16, mx::float16};

// Any numbers do, as long as none is subnormal.
mx::array numbers(const mx::Shape& shape, mx::Dtype dtype) {
  mx::array a = mx::contiguous(mx::full(shape, 0.01f, dtype));
  mx::eval(a);
  return a;
}

using Product = std::function<
    mx::array(const mx::array& x, const mx::array& weight, const mx::array& y)>;

void register_product(
    const Workbench& bench,
    const std::string& name,
    const Shape& shape,
    int tokens,
    mx::Dtype dtype,
    const Product& product) {
  auto run = [=, &bench](benchmark::State& state) {
    mx::array x = numbers({tokens, shape.in}, dtype);
    mx::array weight = numbers({shape.out, shape.in}, dtype);
    mx::array y = numbers({tokens, shape.out}, dtype);
    Work work{
        static_cast<double>(x.nbytes() + weight.nbytes() + y.nbytes()),
        2.0 * tokens * shape.in * shape.out,
        bench.peaks.float_operations};
    measure(state, bench, work, [&](int64_t) {
      mx::array result = product(x, weight, y);
      mx::eval(result);
    });
  };
  benchmark::RegisterBenchmark(
      fmt::format(
          "training/{}x{}/tokens:{}/{}",
          shape.out,
          shape.in,
          tokens,
          name)
          .c_str(),
      run)
      ->UseRealTime()
      ->MinTime(0.1);
}

// A layer whose weight is trained: y = x @ weight.T and both gradients.
void register_dense(const Workbench& bench, const Shape& shape, int tokens) {
  const kernels::Selection& selection = bench.selection;
  for (mx::Dtype dtype : kDtypes) {
    auto name = [&](const char* what) {
      return fmt::format("{}/{}", dtype_name(dtype), what);
    };
    register_product(
        bench,
        name("forward"),
        shape,
        tokens,
        dtype,
        [&](const mx::array& x, const mx::array& w, const mx::array&) {
          return kernels::matmul_transposed(x, w, selection);
        });
    register_product(
        bench,
        name("dx"),
        shape,
        tokens,
        dtype,
        [&](const mx::array&, const mx::array& w, const mx::array& y) {
          return kernels::matmul(y, w, selection);
        });
    register_product(
        bench,
        name("dw"),
        shape,
        tokens,
        dtype,
        [&](const mx::array& x, const mx::array&, const mx::array& y) {
          return kernels::matmul(mx::transpose(y), x, selection);
        });
  }
  register_product(
      bench,
      "float32/forward/mlx",
      shape,
      tokens,
      mx::float32,
      [](const mx::array& x, const mx::array& w, const mx::array&) {
        return mx::matmul(x, mx::transpose(w));
      });
}

// A frozen layer in panels: the gradient in x. Packed before the time is taken.
void register_packed(
    const Workbench& bench,
    const Shape& shape,
    int tokens,
    const char* format) {
  auto run = [=, &bench](benchmark::State& state) {
    mx::array dense = numbers({shape.out, shape.in}, mx::bfloat16);
    std::shared_ptr<const PackedWeights> packed;
    if (format == std::string_view("4bit")) {
      auto parts = mx::quantize(dense, 64, 4);
      packed = kernels::pack_quantized(
          {parts[0], parts[1], parts[2]},
          {64, 4, "affine"},
          bench.selection);
    } else {
      packed = kernels::pack_dense(dense, bench.selection);
    }
    mx::array x = numbers({tokens, shape.in}, mx::float32);
    mx::array y = numbers({tokens, shape.out}, mx::float32);
    Work work{
        static_cast<double>(x.nbytes() + packed->nbytes() + y.nbytes()),
        2.0 * tokens * shape.in * shape.out,
        bench.peaks.float_operations};
    measure(state, bench, work, [&](int64_t) {
      mx::array gradient =
          mx::vjp(
              [&](const std::vector<mx::array>& in) {
                return std::vector<mx::array>{packed->matmul(in[0])};
              },
              {x},
              {y})
              .second[0];
      mx::eval(gradient);
    });
  };
  benchmark::RegisterBenchmark(
      fmt::format(
          "training/{}x{}/tokens:{}/{} panels/dx",
          shape.out,
          shape.in,
          tokens,
          format)
          .c_str(),
      run)
      ->UseRealTime()
      ->MinTime(0.1);
}

}  // namespace

void register_training(const Workbench& bench) {
  for (const Shape& shape : kShapes) {
    for (int tokens : kTokens) {
      register_dense(bench, shape, tokens);
      if (shape.in % 64 == 0 && shape.out >= 576) {
        register_packed(bench, shape, tokens, "4bit");
        register_packed(bench, shape, tokens, "bf16");
      }
    }
  }
}

}  // namespace mlxx::benchmarks
