// Kernels with code for every backend against their fallbacks, on the CPU and
// on the GPU, where there is one.

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/core/compiled_function.h"
#include "mlxx/core/custom_kernel.h"
#include "tests/core/error_of.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;
using DeviceType = mx::Device::DeviceType;

// z = N x + e^y, computed in float32 and stored as T.
CustomKernel axpexp_kernel() {
  return CustomKernel(
      {.name = "axpexp",
       .input_names = {"x", "y"},
       .output_names = {"z"},
       .metal = DeviceKernelSource{.source = R"(
  uint i = thread_position_in_grid.x;
  z[i] = T(float(N) * float(x[i]) + metal::precise::exp(float(y[i])));
)"},
       .cuda = DeviceKernelSource{.source = R"(
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int size = 1;
  for (int axis = 0; axis < x_ndim; ++axis) {
    size *= x_shape[axis];
  }
  if (i < size) {
    z[i] = T(float(N) * float(x[i]) + expf(float(y[i])));
  }
)"},
       .cpu =
           [](const CpuKernelArguments& arguments) {
             auto compute = [&]<typename T>(T*) {
               const T* x = arguments.inputs[0].as<T>();
               const T* y = arguments.inputs[1].as<T>();
               T* z = arguments.outputs[0].as<T>();
               auto n = static_cast<float>(arguments.integer("N"));
               for (size_t i = 0; i < arguments.outputs[0].size; ++i) {
                 z[i] = static_cast<T>(
                     n * static_cast<float>(x[i]) +
                     std::exp(static_cast<float>(y[i])));
               }
             };
             if (arguments.dtype("T") == mx::float32) {
               compute(static_cast<float*>(nullptr));
             } else {
               compute(static_cast<mx::bfloat16_t*>(nullptr));
             }
           },
       .fallback =
           [](const CustomKernelCall& call) {
             const auto& values = call.template_values;
             auto n = static_cast<float>(std::get<int>(values[1].second));
             mx::array x = mx::astype(call.inputs[0], mx::float32);
             mx::array y = mx::astype(call.inputs[1], mx::float32);
             return Arrays{
                 mx::astype(n * x + mx::exp(y), call.output_dtypes[0])};
           }});
}

CustomKernelCall
axpexp_call(const mx::array& x, const mx::array& y, int n, DeviceType device) {
  return {
      .inputs = {x, y},
      .output_shapes = {x.shape()},
      .output_dtypes = {x.dtype()},
      .template_values = {{"T", x.dtype()}, {"N", n}},
      .grid = {std::max(1, static_cast<int>(x.size()))},
      .threadgroup = {64},
      .stream = mx::Device(device)};
}

constexpr int kRowThreads = 64;

// The rows of x [R, E] divided by their root mean square, times w [E] if
// WEIGHTED, and the sum of all squares [1], which every row adds to.
CustomKernelSpec rms_spec() {
  return {
      .name = "rms_rows",
      .input_names = {"x", "w", "eps"},
      .output_names = {"y", "total"},
      .metal =
          DeviceKernelSource{
              .source = R"(
  threadgroup float partial[THREADS];
  int row = threadgroup_position_in_grid.y;
  int lane = thread_position_in_threadgroup.x;
  int width = x_shape[1];
  float sum = 0;
  for (int i = lane; i < width; i += THREADS) {
    sum += square_of(float(x[row * width + i]));
  }
  partial[lane] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int half_size = THREADS / 2; half_size > 0; half_size /= 2) {
    if (lane < half_size) {
      partial[lane] += partial[lane + half_size];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  float scale = metal::precise::rsqrt(partial[0] / width + eps);
  for (int i = lane; i < width; i += THREADS) {
    float value = float(x[row * width + i]) * scale;
    atomic_store_explicit(
        &y[row * width + i],
        WEIGHTED ? value * float(w[i]) : value,
        memory_order_relaxed);
  }
  if (lane == 0) {
    atomic_fetch_add_explicit(&total[0], partial[0], memory_order_relaxed);
  }
)",
              .header = R"(
inline float square_of(float value) {
  return value * value;
}
)"},
      .cuda =
          DeviceKernelSource{
              .source = R"(
  __shared__ float partial[THREADS];
  int row = blockIdx.y;
  int lane = threadIdx.x;
  int width = x_shape[1];
  float sum = 0;
  for (int i = lane; i < width; i += THREADS) {
    sum += square_of(float(x[row * width + i]));
  }
  partial[lane] = sum;
  __syncthreads();
  for (int half_size = THREADS / 2; half_size > 0; half_size /= 2) {
    if (lane < half_size) {
      partial[lane] += partial[lane + half_size];
    }
    __syncthreads();
  }
  float scale = rsqrtf(partial[0] / width + eps[0]);
  for (int i = lane; i < width; i += THREADS) {
    float value = float(x[row * width + i]) * scale;
    y[row * width + i] = WEIGHTED ? value * float(w[i]) : value;
  }
  if (lane == 0) {
    atomicAdd(&total[0], partial[0]);
  }
)",
              .header = R"(
__device__ inline float square_of(float value) {
  return value * value;
}
)",
              .requirement = {.minimum_mlx = "0.30.0"}},
      .cpu =
          [](const CpuKernelArguments& arguments) {
            const auto& input = arguments.inputs[0];
            const float* x = input.as<float>();
            const float* w = arguments.inputs[1].as<float>();
            float eps = *arguments.inputs[2].as<float>();
            float* y = arguments.outputs[0].as<float>();
            float* total = arguments.outputs[1].as<float>();
            bool weighted = arguments.flag("WEIGHTED");
            int width = input.shape[1];
            for (int row = 0; row < input.shape[0]; ++row) {
              float sum = 0;
              for (int i = 0; i < width; ++i) {
                sum += x[row * width + i] * x[row * width + i];
              }
              float scale = 1 / std::sqrt(sum / width + eps);
              for (int i = 0; i < width; ++i) {
                float value = x[row * width + i] * scale;
                y[row * width + i] = weighted ? value * w[i] : value;
              }
              *total += sum;
            }
          },
      .atomic_outputs = true,
      .fallback =
          [](const CustomKernelCall& call) {
            const mx::array& x = call.inputs[0];
            mx::array squares = mx::square(x);
            mx::array y =
                x * mx::rsqrt(mx::mean(squares, -1, true) + call.inputs[2]);
            bool weighted = std::get<bool>(call.template_values[1].second);
            return Arrays{
                weighted ? y * call.inputs[1] : y,
                mx::reshape(mx::sum(squares), {1})};
          }};
}

CustomKernelCall rms_call(
    const mx::array& x,
    const mx::array& w,
    bool weighted,
    DeviceType device) {
  return {
      .inputs = {x, w, mx::array(1e-5f)},
      .output_shapes = {x.shape(), {1}},
      .output_dtypes = {mx::float32, mx::float32},
      .template_values = {{"THREADS", kRowThreads}, {"WEIGHTED", weighted}},
      .grid = {kRowThreads, x.shape(0)},
      .threadgroup = {kRowThreads},
      .init_value = 0,
      .stream = mx::Device(device)};
}

mx::array normal(mx::Shape shape, uint64_t seed) {
  mx::array x = mx::random::normal(
      std::move(shape),
      mx::float32,
      0,
      1,
      mx::random::key(seed),
      mx::Device(mx::Device::cpu));
  x.eval();
  return x;
}

// |found - wanted| / |wanted|, on the CPU.
float relative_error(const mx::array& found, const mx::array& wanted) {
  mx::StreamContext on_cpu(mx::Device(mx::Device::cpu));
  mx::array x = mx::astype(found, mx::float32);
  mx::array y = mx::astype(wanted, mx::float32);
  mx::array gap = mx::sum(mx::square(x - y)) / mx::sum(mx::square(y));
  return std::sqrt(gap.item<float>());
}

void expect_like_fallback(
    const CustomKernel& kernel,
    const CustomKernelCall& call,
    float most) {
  auto found = kernel(call);
  auto wanted = kernel.fallback(call);
  mx::eval(found);
  mx::eval(wanted);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].shape(), wanted[i].shape());
    EXPECT_EQ(found[i].dtype(), wanted[i].dtype());
    EXPECT_LT(relative_error(found[i], wanted[i]), most) << "output " << i;
  }
}

class KernelOnDevice : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!mx::is_available(mx::Device(GetParam()))) {
      GTEST_SKIP() << "MLX has no such device here";
    }
    mx::set_compile_mode(mx::CompileMode::no_fuse);
  }
  bool is_gpu() const {
    return GetParam() == mx::Device::gpu;
  }
  mx::Stream stream() const {
    return mx::default_stream(mx::Device(GetParam()));
  }
};

INSTANTIATE_TEST_SUITE_P(Cpu, KernelOnDevice, testing::Values(mx::Device::cpu));
INSTANTIATE_TEST_SUITE_P(Gpu, KernelOnDevice, testing::Values(mx::Device::gpu));

TEST_P(KernelOnDevice, ThePlatformIsKnown) {
  const auto& platform = loaded_kernel_platform();
  Backend backend = platform.backend_of(stream());
  EXPECT_EQ(axpexp_kernel().missing(backend), std::nullopt);
  EXPECT_EQ(CustomKernel(rms_spec()).missing(backend), std::nullopt);
  if (is_gpu()) {
    EXPECT_TRUE(
        platform.architecture.starts_with("sm_") ||
        platform.architecture.starts_with("applegpu_"))
        << platform.architecture;
  }
}

// One kernel for dtypes, template values and sizes in turn: none may run the
// code that was made for another.
TEST_P(KernelOnDevice, ElementwiseValuesAreTheFallbacks) {
  CustomKernel kernel = axpexp_kernel();
  for (int round = 0; round < 2; ++round) {
    for (mx::Shape shape : std::initializer_list<mx::Shape>{
             {1000},
             {7, 33},
             {3},
             {1},
             {2, 3, 4, 5}}) {
      for (mx::Dtype dtype : {mx::float32, mx::bfloat16}) {
        for (int n : {3, -2, 0}) {
          mx::array x = mx::astype(normal(shape, 1), dtype, stream());
          mx::array y = mx::astype(normal(shape, 2), dtype, stream());
          SCOPED_TRACE(fmt::format(
              "({}) {} N={}",
              fmt::join(shape, ","),
              dtype.size(),
              n));
          expect_like_fallback(
              kernel,
              axpexp_call(x, y, n, GetParam()),
              dtype == mx::float32 ? 1e-5f : 1e-2f);
        }
      }
    }
  }
}

TEST_P(KernelOnDevice, InputsThatAreNotRowContiguousAreCopied) {
  mx::array x = mx::transpose(normal({40, 30}, 1), stream());
  mx::array y =
      mx::slice(normal({30, 80}, 2), {0, 0}, {30, 80}, {1, 2}, stream());
  expect_like_fallback(
      axpexp_kernel(),
      axpexp_call(x, y, 2, GetParam()),
      1e-5f);
  expect_like_fallback(
      CustomKernel(rms_spec()),
      rms_call(x, normal({40}, 3), true, GetParam()),
      1e-5f);
}

TEST_P(KernelOnDevice, RowsSharedMemoryAtomicsAndScalarsWork) {
  CustomKernel kernel(rms_spec());
  for (mx::Shape shape :
       std::initializer_list<mx::Shape>{{1, 1}, {5, 100}, {100, 300}}) {
    for (bool weighted : {true, false}) {
      SCOPED_TRACE(fmt::format("({}) {}", fmt::join(shape, ","), weighted));
      mx::array w = normal({shape[1]}, 2);
      expect_like_fallback(
          kernel,
          rms_call(normal(shape, 1), w, weighted, GetParam()),
          1e-5f);
    }
  }
}

TEST_P(KernelOnDevice, ResultsAreLazyAndEmptyOnesCostNothing) {
  CustomKernel kernel = axpexp_kernel();
  mx::array x = normal({100}, 1);
  mx::array z = kernel(axpexp_call(x, x, 1, GetParam()))[0];
  EXPECT_EQ(z.status(), mx::array::Status::unscheduled);
  z.eval();
  mx::array none = mx::zeros({0, 4}, mx::float32, stream());
  z = kernel(axpexp_call(none, none, 1, GetParam()))[0];
  z.eval();
  EXPECT_EQ(z.shape(), (mx::Shape{0, 4}));
}

TEST_P(KernelOnDevice, GradientsAreTheFallbacks) {
  mx::StreamContext here(stream());
  mx::array x = normal({6, 50}, 1);
  mx::array w = normal({50}, 2);
  auto gradients_of = [&](auto&& run) {
    return mx::grad(
        [&](const Arrays& inputs) {
          auto outputs = run(rms_call(inputs[0], inputs[1], true, GetParam()));
          return mx::sum(outputs[0] * outputs[0] * outputs[0]) +
              mx::sum(outputs[1]);
        },
        {0, 1})({x, w});
  };
  CustomKernel kernel(rms_spec());
  auto found = gradients_of(kernel);
  auto wanted = gradients_of(
      [&](const CustomKernelCall& call) { return kernel.fallback(call); });
  EXPECT_LT(relative_error(found[0], wanted[0]), 1e-4f);
  EXPECT_LT(relative_error(found[1], wanted[1]), 1e-4f);

  // One of its own comes before.
  CustomKernelSpec spec = rms_spec();
  spec.gradient = [](const CustomKernelCall& call,
                     const Arrays& cotangents,
                     const Arrays& outputs) {
    return Arrays{
        mx::full_like(call.inputs[0], 7),
        mx::sum(cotangents[0] * outputs[0], 0),
        mx::zeros({})};
  };
  auto outputs = kernel(rms_call(x, w, true, GetParam()));
  auto own = gradients_of(CustomKernel(spec));
  EXPECT_EQ(mx::max(own[0]).item<float>(), 7);
  EXPECT_EQ(mx::min(own[0]).item<float>(), 7);
  mx::array cubes = 3 * outputs[0] * outputs[0] * outputs[0];
  EXPECT_LT(relative_error(own[1], mx::sum(cubes, 0)), 1e-4f);
}

TEST_P(KernelOnDevice, WorksInsideCompiledFunctions) {
  mx::StreamContext here(stream());
  CustomKernel kernel(rms_spec());
  for (bool shapeless : {false, true}) {
    CompiledFunction compiled(
        [&](const Arrays& inputs) {
          mx::array x = inputs[0] * 2.0f;
          return kernel(rms_call(x, inputs[1], true, GetParam()));
        },
        {.shapeless = shapeless});
    for (int rows : {4, 9, 4}) {
      mx::array x = normal({rows, 20}, 1);
      mx::array w = normal({20}, 2);
      auto found = compiled({x, w});
      auto wanted = kernel.fallback(rms_call(x * 2.0f, w, true, GetParam()));
      EXPECT_LT(relative_error(found[0], wanted[0]), 1e-5f);
      EXPECT_LT(relative_error(found[1], wanted[1]), 1e-5f);
    }
    EXPECT_EQ(compiled.trace_count(), shapeless ? 1 : 2);
  }
}

TEST_P(KernelOnDevice, RefusesVmap) {
  mx::StreamContext here(stream());
  CustomKernel kernel = axpexp_kernel();
  EXPECT_ANY_THROW(mx::vmap([&](const Arrays& inputs) {
    return kernel(axpexp_call(inputs[0], inputs[0], 1, GetParam()));
  })({normal({2, 3}, 1)}));
}

TEST_P(KernelOnDevice, AGpuRefusesToReadTheShapeOfAScalar) {
  mx::array x(2.0f);
  CustomKernelCall call = axpexp_call(x, x, 1, GetParam());
  if (is_gpu()) {
    EXPECT_ERROR(axpexp_kernel()(call), "invalid_request", "no dimensions");
  } else {
    expect_like_fallback(axpexp_kernel(), call, 1e-5f);
  }
}

// A compiler's message comes out of the evaluation, and the next kernel runs.
TEST_P(KernelOnDevice, SourceThatDoesNotCompileIsAnError) {
  if (!is_gpu()) {
    GTEST_SKIP() << "nothing is compiled on the CPU";
  }
  DeviceKernelSource broken{.source = "this is no source"};
  CustomKernel kernel(
      {.name = "broken",
       .input_names = {"x", "y"},
       .output_names = {"z"},
       .metal = broken,
       .cuda = broken});
  mx::array x = normal({4}, 1);
  EXPECT_ANY_THROW(mx::eval(kernel(axpexp_call(x, x, 1, GetParam()))));
  expect_like_fallback(
      axpexp_kernel(),
      axpexp_call(x, x, 1, GetParam()),
      1e-5f);
}

}  // namespace
}  // namespace mlxx
