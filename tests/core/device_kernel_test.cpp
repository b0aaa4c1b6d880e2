#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "mlxx/core/custom_kernel.h"
#include "tests/core/error_of.h"

// How kernels are chosen and made for GPUs, with a GPU that only notes what it
// is asked for. custom_kernel_gpu_test.cpp runs on real ones.

namespace mlxx {
namespace {

const mx::Stream kGpuStream(0, mx::Device::gpu);

struct FakeGpu {
  std::vector<std::string> made;  // "metal name\nbody"
  std::atomic<size_t> template_count = 0;
  std::atomic<int> launches = 0;
  const char* refuse_making = nullptr;
  const char* refuse_applying = nullptr;

  DeviceKernelMaker maker() {
    return [this](
               Backend backend,
               const std::string& name,
               const std::string& body,
               const CustomKernelSpec&) -> mx::fast::CustomKernelFunction {
      if (refuse_making) {
        throw std::runtime_error(refuse_making);
      }
      made.push_back(fmt::format("{} {}\n{}", to_string(backend), name, body));
      return
          [this](
              const std::vector<mx::array>&,
              const std::vector<mx::Shape>& shapes,
              const std::vector<mx::Dtype>& dtypes,
              std::tuple<int, int, int>,
              std::tuple<int, int, int>,
              std::vector<std::pair<std::string, mx::fast::TemplateArg>> values,
              std::optional<float>,
              bool,
              mx::StreamOrDevice) {
            if (refuse_applying) {
              throw std::invalid_argument(refuse_applying);
            }
            ++launches;
            template_count = values.size();
            return std::vector{mx::full(
                shapes[0],
                42,
                dtypes[0],
                mx::Device(mx::Device::cpu))};
          };
    };
  }
};

CustomKernelSpec spec() {
  return {
      .name = "twice",
      .input_names = {"x"},
      .output_names = {"y"},
      .metal = DeviceKernelSource{.source = "metal source;"},
      .cuda = DeviceKernelSource{.source = "cuda source;"}};
}

CustomKernelCall call(const mx::array& x) {
  return {
      .inputs = {x},
      .output_shapes = {x.shape()},
      .output_dtypes = {x.dtype()},
      .grid = {16},
      .stream = kGpuStream};
}

KernelPlatform metal() {
  return {"0.32.4", true, false, "applegpu_g15s"};
}

KernelPlatform cuda() {
  return {"0.32.4", false, true, "sm_90"};
}

TEST(DeviceKernel, TakesTheBackendOfTheStreamAndIsMadeAtTheFirstCall) {
  for (const auto& platform : {metal(), cuda()}) {
    FakeGpu gpu;
    CustomKernel kernel(spec(), platform, gpu.maker());
    EXPECT_TRUE(gpu.made.empty());
    mx::array y = kernel(call(mx::zeros({16})))[0];
    kernel(call(mx::zeros({16})));
    EXPECT_EQ(mx::max(y).item<float>(), 42);
    ASSERT_EQ(gpu.made.size(), 1u);
    EXPECT_EQ(gpu.launches, 2);
    std::string name = platform.has_metal ? "metal" : "cuda";
    EXPECT_TRUE(gpu.made[0].starts_with(name + " twice_")) << gpu.made[0];
    EXPECT_TRUE(gpu.made[0].ends_with("\n" + name + " source;")) << gpu.made[0];
    // The CPU has no code.
    CustomKernelCall on_cpu = call(mx::zeros({16}));
    on_cpu.stream = mx::Device(mx::Device::cpu);
    EXPECT_ERROR(
        kernel(on_cpu),
        "unsupported",
        "[custom kernel twice] on cpu: has no code, and there is no fallback");
  }
}

// MLX keeps compiled code by name alone.
TEST(DeviceKernel, EveryCombinationThatChangesTheCodeHasAName) {
  FakeGpu gpu;
  CustomKernel kernel(spec(), cuda(), gpu.maker());
  std::vector<CustomKernelCall> calls{
      call(mx::zeros({16})),
      call(mx::zeros({16}, mx::bfloat16)),
      call(mx::zeros({4})),
      call(mx::zeros({}))};
  for (TemplateValue value : std::initializer_list<TemplateValue>{
           1,
           true,
           2,
           mx::float32,
           mx::bfloat16}) {
    calls.push_back(calls[0]);
    calls.back().template_values = {{"N", value}};
  }
  calls.push_back(calls[0]);
  calls.back().output_dtypes = {mx::int32};
  for (int round = 0; round < 2; ++round) {
    for (const auto& each : calls) {
      kernel(each);
    }
  }
  EXPECT_EQ(gpu.made.size(), calls.size());
  std::ranges::sort(gpu.made);
  EXPECT_EQ(std::ranges::unique(gpu.made).size(), 0u);

  // Another source under the same name.
  CustomKernelSpec other = spec();
  other.cuda->source = "other source;";
  FakeGpu other_gpu;
  CustomKernel(other, cuda(), other_gpu.maker())(calls[0]);
  auto name = [](std::string text) { return text.substr(0, text.find('\n')); };
  for (const auto& made : gpu.made) {
    EXPECT_NE(name(made), name(other_gpu.made[0]));
  }
}

TEST(DeviceKernel, SeveralThreadsMakeEachCombinationOnce) {
  FakeGpu gpu;
  CustomKernel kernel(spec(), cuda(), gpu.maker());
  constexpr int kThreads = 4;
  constexpr int kCombinations = 25;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      CustomKernelCall with = call(mx::zeros({16}));
      for (int n = 0; n < kCombinations; ++n) {
        with.template_values = {{"N", n}};
        kernel(with);
      }
      mx::clear_streams();
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(gpu.made.size(), size_t{kCombinations});
  EXPECT_EQ(gpu.launches, kThreads * kCombinations);
}

// MLX writes template values into the function's name.
TEST(DeviceKernel, NegativeTemplateValuesBecomeConstantsOfTheBody) {
  FakeGpu gpu;
  CustomKernel kernel(spec(), metal(), gpu.maker());
  CustomKernelCall with = call(mx::zeros({16}));
  with.template_values = {{"LOW", -5}, {"HIGH", 5}};
  kernel(with);
  EXPECT_TRUE(gpu.made[0].ends_with("\nconstexpr int LOW = -5;\nmetal source;"))
      << gpu.made[0];
  EXPECT_EQ(gpu.template_count, 1u);
}

TEST(DeviceKernel, RequirementsDecideByVersionAndArchitecture) {
  struct Case {
    KernelRequirement requirement;
    const char* missing;  // null: it runs
  };
  for (const Case& test : std::initializer_list<Case>{
           {{}, nullptr},
           {{"0.32.4", {}}, nullptr},
           {{"0.9.10", {"sm_80", "sm_9"}}, nullptr},
           {{"0.32.5", {}}, "needs MLX 0.32.5, found 0.32.4"},
           {{"1.0.0", {}}, "needs MLX 1.0.0, found 0.32.4"},
           {{"", {"sm_80", "sm_100"}},
            "is for the architectures sm_80, sm_100, found 'sm_90'"}}) {
    FakeGpu gpu;
    CustomKernelSpec with = spec();
    with.cuda->requirement = test.requirement;
    CustomKernel strict(with, cuda(), gpu.maker());
    with.fallback = [](const CustomKernelCall& call) {
      return std::vector{mx::zeros_like(call.inputs[0], mx::Device::cpu)};
    };
    EXPECT_EQ(strict.missing(Backend::metal), "this MLX has no Metal");
    if (!test.missing) {
      EXPECT_EQ(strict.missing(Backend::cuda), std::nullopt);
      strict(call(mx::zeros({16})));
      EXPECT_EQ(gpu.launches, 1);
      continue;
    }
    EXPECT_EQ(strict.missing(Backend::cuda), test.missing);
    EXPECT_ERROR(
        strict(call(mx::zeros({16}))),
        "unsupported",
        fmt::format("[custom kernel twice] on cuda: {}, ", test.missing));
    EXPECT_EQ(gpu.launches, 0);
  }
}

TEST(DeviceKernel, VersionsOfDevelopmentBuildsAreUnderstood) {
  KernelRequirement requirement{.minimum_mlx = "0.33.0"};
  KernelPlatform platform = cuda();
  platform.mlx_version = "0.33.0.dev20260101+abc";
  EXPECT_EQ(requirement.unmet(platform, ""), std::nullopt);
  platform.mlx_version = "unknown";
  EXPECT_EQ(requirement.unmet(platform, ""), "needs MLX 0.33.0, found unknown");
}

TEST(DeviceKernel, TheLoadedPlatformIsThatOfMlx) {
  const KernelPlatform& platform = loaded_kernel_platform();
  EXPECT_EQ(&platform, &loaded_kernel_platform());
  EXPECT_EQ(platform.mlx_version, mx::version());
  EXPECT_EQ(
      platform.has_metal || platform.has_cuda,
      mx::is_available(mx::Device::gpu));
  EXPECT_EQ(platform.architecture.empty(), !mx::is_available(mx::Device::gpu));
  EXPECT_EQ(
      platform.backend_of(mx::default_stream(mx::Device::cpu)),
      Backend::cpu);
}

TEST(DeviceKernel, WhatMlxThrowsNamesKernelBackendAndStep) {
  FakeGpu gpu;
  CustomKernel kernel(spec(), cuda(), gpu.maker());
  gpu.refuse_making = "no compiler";
  EXPECT_ERROR(
      kernel(call(mx::zeros({16}))),
      "internal",
      "[custom kernel twice] making it for cuda failed: no compiler");
  gpu.refuse_making = nullptr;
  gpu.refuse_applying = "bad grid";
  EXPECT_ERROR(
      kernel(call(mx::zeros({16}))),
      "internal",
      "[custom kernel twice] applying it for cuda failed: bad grid");
  gpu.refuse_applying = nullptr;
  kernel(call(mx::zeros({16})));
  EXPECT_EQ(gpu.launches, 1);
}

TEST(DeviceKernel, ChecksWhatOnlyAGpuAsksFor) {
  FakeGpu gpu;
  CustomKernelSpec reads_shape = spec();
  reads_shape.metal->source = "int n = x_shape[0];";
  CustomKernel kernel(reads_shape, metal(), gpu.maker());
  EXPECT_ERROR(
      kernel(call(mx::zeros({}))),
      "invalid_request",
      "the source reads x_shape, and that input has no dimensions");
  kernel(call(mx::zeros({2})));

  CustomKernelCall deep = call(mx::zeros({16}));
  deep.grid = {16, 16, 128};
  deep.threadgroup = {1, 1, 128};
  EXPECT_ERROR(
      CustomKernel(spec(), cuda(), gpu.maker())(deep),
      "invalid_request",
      "CUDA has at most 64 threads of a group along z");
  deep.threadgroup = {1, 1, 64};
  deep.grid = {1 << 30, 65536, 1};
  EXPECT_ERROR(
      CustomKernel(spec(), cuda(), gpu.maker())(deep),
      "invalid_request",
      "65535 groups along y");
  // Metal has neither limit.
  CustomKernel(spec(), metal(), gpu.maker())(deep);
}

TEST(DeviceKernel, NoGpuIsUnsupportedBeforeMlxIsAsked) {
  FakeGpu gpu;
  CustomKernel kernel(spec(), {"0.32.4", false, false, ""}, gpu.maker());
  EXPECT_ERROR(
      kernel(call(mx::zeros({16}))),
      "unsupported",
      "[custom kernel twice] on cuda: this MLX has no CUDA");
  EXPECT_TRUE(gpu.made.empty());
}

// MLX without CUDA or Metal, as the CPU's library is.
TEST(DeviceKernel, MlxItselfSaysWhatIsMissing) {
  if (mx::is_available(mx::Device::gpu)) {
    GTEST_SKIP() << "this MLX has a GPU";
  }
  EXPECT_ERROR(
      CustomKernel(spec(), cuda(), mlx_kernel_maker())(call(mx::zeros({16}))),
      "internal",
      "applying it for cuda failed: [cuda_kernel] No CUDA back-end.");
  EXPECT_ERROR(
      CustomKernel(spec(), metal(), mlx_kernel_maker())(call(mx::zeros({16}))),
      "internal",
      "applying it for metal failed: [metal_kernel]");
}

}  // namespace
}  // namespace mlxx
