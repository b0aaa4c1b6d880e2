#include <limits>

#include <gtest/gtest.h>

#include "mlxx/core/custom_kernel.h"
#include "tests/core/error_of.h"

namespace mlxx {
namespace {

CustomKernelSpec good_spec() {
  return {
      .name = "kernel_1",
      .input_names = {"x", "y"},
      .output_names = {"z"},
      .cpu = [](const CpuKernelArguments&) {}};
}

CustomKernelCall good_call() {
  return {
      .inputs = {mx::zeros({4}), mx::zeros({4})},
      .output_shapes = {{4}},
      .output_dtypes = {mx::float32},
      .grid = {4}};
}

// The error of a spec that `change` has damaged.
template <typename Change>
std::string spec_error(Change&& change) {
  CustomKernelSpec spec = good_spec();
  change(spec);
  return error_of([&] { CustomKernel kernel(spec); });
}

template <typename Change>
std::string call_error(Change&& change) {
  CustomKernelCall call = good_call();
  change(call);
  return error_of([&] { CustomKernel{good_spec()}(call); });
}

TEST(CustomKernelChecks, AcceptAGoodKernel) {
  EXPECT_EQ(spec_error([](auto&) {}), "no error");
  EXPECT_EQ(call_error([](auto&) {}), "no error");
}

TEST(CustomKernelChecks, NamesMustBeDifferentIdentifiers) {
  for (const char* name : {"", "1x", "a b", "a-b", "x;", "f(", "ä", "float"}) {
    std::string wanted =
        fmt::format("must be a C identifier, found '{}'", name);
    for (auto member :
         {&CustomKernelSpec::input_names, &CustomKernelSpec::output_names}) {
      auto error = spec_error([&](auto& spec) { (spec.*member)[0] = name; });
      EXPECT_NE(error.find(wanted), std::string::npos) << error;
    }
    auto error = spec_error([&](auto& spec) { spec.name = name; });
    EXPECT_NE(error.find(wanted), std::string::npos) << error;
    error = call_error([&](auto& call) { call.template_values = {{name, 1}}; });
    EXPECT_NE(error.find(wanted), std::string::npos) << error;
  }
  for (const char* name : {"x", "y_shape", "y_strides", "y_ndim"}) {
    std::string wanted = fmt::format(
        "invalid_request: [custom kernel kernel_1] the name '{}' stands for "
        "two things",
        name);
    EXPECT_EQ(
        spec_error([&](auto& spec) { spec.output_names[0] = name; }),
        wanted);
    EXPECT_EQ(
        call_error([&](auto& call) { call.template_values = {{name, 1}}; }),
        wanted);
  }
}

TEST(CustomKernelChecks, ASpecNeedsOutputsAndCode) {
  EXPECT_ERROR(
      CustomKernel({.name = "k", .cpu = good_spec().cpu}),
      "invalid_request",
      "[custom kernel k] has no outputs");
  EXPECT_ERROR(
      CustomKernel({.name = "k", .output_names = {"z"}}),
      "invalid_request",
      "neither code for a backend nor a fallback");
  auto error = spec_error([](auto& spec) { spec.metal.emplace(); });
  EXPECT_NE(error.find("the Metal source is empty"), error.npos) << error;
  error = spec_error(
      [](auto& spec) { spec.cuda = {.source = ";", .shared_memory = -1}; });
  EXPECT_NE(error.find("shared memory must not be neg"), error.npos) << error;
  for (const char* version :
       {"1", "0.32", "0.32.x", "a", "0.32.4b", "0.-1.2"}) {
    error = spec_error([&](auto& spec) {
      spec.cuda = {.source = ";", .requirement = {.minimum_mlx = version}};
    });
    EXPECT_NE(
        error.find(fmt::format("major.minor.patch, found '{}'", version)),
        error.npos)
        << error;
  }
}

TEST(CustomKernelChecks, CountsMustFitTheSpec) {
  struct Case {
    void (*change)(CustomKernelCall&);
    const char* text;
  };
  for (const Case& test : std::initializer_list<Case>{
           {[](auto& call) { call.inputs.pop_back(); },
            "takes 2 inputs, found 1"},
           {[](auto& call) { call.output_shapes.clear(); },
            "takes 1 output shapes, found 0"},
           {[](auto& call) { call.output_dtypes.push_back(mx::int8); },
            "takes 1 output dtypes, found 2"},
           {[](auto& call) { call.grid.y = 0; },
            "the grid must be at least 1 along each axis, found 4 x 0 x 1"},
           {[](auto& call) { call.threadgroup.z = -1; },
            "the threadgroup must be at least 1 along each axis"},
           {[](auto& call) { call.threadgroup = {32, 33}; },
            "a threadgroup has at most 1024 threads, found 32 x 33 x 1"},
           {[](auto& call) { call.threadgroup = {1 << 30, 1 << 30, 1 << 30}; },
            "a threadgroup has at most 1024 threads"},
           {[](auto& call) { call.threadgroup = {1, 1 << 10, 1 << 30}; },
            "a threadgroup has at most 1024 threads"},
           {[](auto& call) { call.output_shapes[0] = {4, -1}; },
            "output 'z' cannot have the shape (4, -1)"},
           {[](auto& call) {
              call.output_shapes[0] = {1 << 30, 1 << 30, 1 << 30};
            },
            "output 'z' cannot have the shape (1073741824,"}}) {
    EXPECT_ERROR(
        {
          CustomKernelCall call = good_call();
          test.change(call);
          CustomKernel{good_spec()}(call);
        },
        "invalid_request",
        test.text);
  }
}

TEST(CustomKernelChecks, TheInitialValueMustFitTheDtype) {
  float inf = std::numeric_limits<float>::infinity();
  struct Case {
    mx::Dtype dtype;
    float good;
    float bad;
  };
  for (const Case& test : std::initializer_list<Case>{
           {mx::bool_, 1, 2},
           {mx::uint8, 255, 256},
           {mx::uint8, 0, -1},
           {mx::int8, -128, -129},
           {mx::int32, 5, 0.5f},
           {mx::int64, -9223372036854775808.0f, 9223372036854775808.0f},
           {mx::uint64, 1e19f, 2e19f},
           {mx::int16, 7, std::numeric_limits<float>::quiet_NaN()},
           {mx::int32, 7, -inf}}) {
    CustomKernelCall call = good_call();
    call.output_dtypes = {test.dtype};
    call.init_value = test.good;
    CustomKernel kernel(good_spec());
    kernel(call)[0].eval();
    call.init_value = test.bad;
    EXPECT_ERROR(kernel(call), "invalid_request", "does not fit into 'z' of ");
  }
  CustomKernelCall call = good_call();
  call.init_value = -inf;
  EXPECT_EQ(mx::max(CustomKernel{good_spec()}(call)[0]).item<float>(), -inf);
}

}  // namespace
}  // namespace mlxx
