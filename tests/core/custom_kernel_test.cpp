#include <cmath>
#include <limits>
#include <thread>

#include <gtest/gtest.h>
#include <mlx/primitives.h>

#include "mlxx/core/compiled_function.h"
#include "mlxx/core/custom_kernel.h"
#include "tests/core/error_of.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

mx::array iota(mx::Shape shape) {
  int size = 1;
  for (int extent : shape) {
    size *= extent;
  }
  return mx::reshape(mx::arange(size, mx::float32), std::move(shape));
}

std::vector<float> values(mx::array array) {
  array = mx::contiguous(mx::astype(array, mx::float32));
  array.eval();
  return {array.data<float>(), array.data<float>() + array.size()};
}

// z = n x + e^y, of the inputs' shape.
Arrays axpexp(const CustomKernelCall& call) {
  float n = static_cast<float>(std::get<int>(call.template_values[0].second));
  return {n * call.inputs[0] + mx::exp(call.inputs[1])};
}

void axpexp_cpu(const CpuKernelArguments& arguments) {
  const float* x = arguments.inputs[0].as<float>();
  const float* y = arguments.inputs[1].as<float>();
  float* z = arguments.outputs[0].as<float>();
  auto n = static_cast<float>(arguments.integer("N"));
  for (size_t i = 0; i < arguments.outputs[0].size; ++i) {
    z[i] = n * x[i] + std::exp(y[i]);
  }
}

CustomKernelSpec axpexp_spec() {
  return {
      .name = "axpexp",
      .input_names = {"x", "y"},
      .output_names = {"z"},
      .cpu = axpexp_cpu};
}

CustomKernelCall axpexp_call(const mx::array& x, const mx::array& y) {
  return {
      .inputs = {x, y},
      .output_shapes = {x.shape()},
      .output_dtypes = {mx::float32},
      .template_values = {{"N", 3}},
      .grid = {static_cast<int>(x.size())},
      .threadgroup = {32}};
}

TEST(CustomKernel, RunsTheCpuFunctionWhenEvaluated) {
  int runs = 0;
  CustomKernelSpec spec = axpexp_spec();
  spec.cpu = [&](const CpuKernelArguments& arguments) {
    ++runs;
    EXPECT_EQ(arguments.kernel, "custom kernel axpexp");
    EXPECT_EQ(arguments.inputs[1].name, "y");
    EXPECT_EQ(arguments.inputs[0].shape, (mx::Shape{2, 3}));
    EXPECT_EQ(arguments.grid, (KernelSize{6, 1, 1}));
    EXPECT_EQ(arguments.threadgroup, (KernelSize{32, 1, 1}));
    axpexp_cpu(arguments);
  };
  CustomKernel kernel(spec);
  mx::array x = iota({2, 3});
  mx::array z = kernel(axpexp_call(x, x))[0];
  EXPECT_EQ(runs, 0);
  mx::array plain = axpexp(axpexp_call(x, x))[0];
  EXPECT_TRUE(mx::allclose(z, plain, 1e-6).item<bool>());
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(kernel.missing(Backend::cpu), std::nullopt);
}

TEST(CustomKernel, MakesInputsRowContiguousUnlessTold) {
  CustomKernelSpec spec = axpexp_spec();
  mx::array x = mx::transpose(iota({3, 2}));
  x.eval();
  EXPECT_TRUE(mx::allclose(
                  CustomKernel{spec}(axpexp_call(x, x))[0],
                  axpexp(axpexp_call(x, x))[0])
                  .item<bool>());

  spec.ensure_row_contiguous = false;
  mx::Strides seen;
  spec.cpu = [&](const CpuKernelArguments& arguments) {
    seen = arguments.inputs[0].strides;
    EXPECT_EQ(arguments.inputs[0].as<float>()[1], 1);  // x[0, 1] is 2
    axpexp_cpu(arguments);
  };
  CustomKernel{spec}(axpexp_call(x, x))[0].eval();
  EXPECT_EQ(seen, (mx::Strides{1, 2}));
}

// Two outputs of different shapes and dtypes, from no inputs.
TEST(CustomKernel, FillsOutputsWithTheInitialValue) {
  CustomKernel kernel(
      {.name = "fill",
       .output_names = {"a", "b", "c"},
       .cpu = [](const CpuKernelArguments& arguments) {
         arguments.outputs[0].as<mx::bfloat16_t>()[1] = 7;
         EXPECT_TRUE(arguments.flag("ON"));
         EXPECT_EQ(arguments.dtype("T"), mx::int16);
       }});
  auto outputs = kernel(
      {.output_shapes = {{3}, {}, {2, 1}},
       .output_dtypes = {mx::bfloat16, mx::int8, mx::complex64},
       .template_values = {{"ON", true}, {"T", mx::int16}},
       .init_value = -2});
  EXPECT_EQ(values(outputs[0]), (std::vector<float>{-2, 7, -2}));
  EXPECT_EQ(outputs[1].item<int8_t>(), -2);
  EXPECT_EQ(values(outputs[2]), (std::vector<float>{-2, -2}));
}

TEST(CustomKernel, DoesNotRunForEmptyOutputs) {
  CustomKernelSpec spec = axpexp_spec();
  spec.cpu = [](const CpuKernelArguments&) { FAIL() << "ran"; };
  mx::array z =
      CustomKernel(spec)(axpexp_call(mx::zeros({2, 0}), mx::zeros({2, 0})))[0];
  z.eval();
  EXPECT_EQ(z.shape(), (mx::Shape{2, 0}));
}

// In MLX's exception: it loses the type.
std::string evaluation_error(mx::array array) {
  try {
    array.eval();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(CustomKernel, WhatTheCpuFunctionThrowsComesOutOfTheEvaluation) {
  CustomKernelSpec spec = axpexp_spec();
  CustomKernel good(spec);
  mx::array ints = mx::zeros({4}, mx::int32);
  EXPECT_EQ(
      evaluation_error(good(axpexp_call(ints, ints))[0]),
      "[custom kernel axpexp] 'x' is an array of int32, read as float32");
  spec.cpu = [](const CpuKernelArguments& arguments) {
    arguments.integer("M");
  };
  mx::array x = iota({4});
  EXPECT_EQ(
      evaluation_error(CustomKernel{spec}(axpexp_call(x, x))[0]),
      "[custom kernel axpexp] has no template value 'M'");
  spec.cpu = [](const CpuKernelArguments& arguments) { arguments.flag("N"); };
  EXPECT_EQ(
      evaluation_error(CustomKernel{spec}(axpexp_call(x, x))[0]),
      "[custom kernel axpexp] the template value 'N' is no bool");
  // The stream still works.
  EXPECT_EQ(values(good(axpexp_call(x, x))[0])[0], 1);
}

TEST(CustomKernel, WorksInsideACompiledFunction) {
  mx::set_compile_mode(mx::CompileMode::no_fuse);
  CustomKernel kernel(axpexp_spec());
  int traces = 0;
  CompiledFunction compiled(
      [&](const Arrays& inputs) {
        ++traces;
        mx::array z = kernel(axpexp_call(inputs[0], inputs[0] * 0.5f))[0];
        return Arrays{z + 1.0f};
      },
      {.shapeless = false});
  for (int n : {4, 6, 4}) {
    mx::array x = iota({n});
    mx::array plain = axpexp(axpexp_call(x, x * 0.5f))[0] + 1.0f;
    EXPECT_TRUE(mx::allclose(compiled({x})[0], plain, 1e-6).item<bool>());
  }
  EXPECT_EQ(traces, 2);
}

// Equal calls are computed once, others each.
TEST(CustomKernel, CompiledCallsAreMergedOnlyIfTheyAreEqual) {
  mx::set_compile_mode(mx::CompileMode::no_fuse);
  int runs = 0;
  CustomKernelSpec spec = axpexp_spec();
  spec.cpu = [&](const CpuKernelArguments& arguments) {
    ++runs;
    axpexp_cpu(arguments);
  };
  CustomKernel kernel(spec);
  CompiledFunction compiled(
      [&](const Arrays& inputs) {
        CustomKernelCall call = axpexp_call(inputs[0], inputs[0]);
        mx::array same = kernel(call)[0] - kernel(call)[0];
        call.template_values = {{"N", 5}};
        return Arrays{same, kernel(call)[0]};
      },
      {.shapeless = false});
  mx::array x = iota({4});
  auto out = compiled({x});
  EXPECT_EQ(values(out[0]), std::vector<float>(4, 0));
  EXPECT_FLOAT_EQ(values(out[1])[2], 10 + std::exp(2.0f));
  EXPECT_EQ(runs, 2);
}

TEST(CustomKernel, AShapelessTraceTakesTheFallback) {
  mx::set_compile_mode(mx::CompileMode::no_fuse);
  CustomKernelSpec spec = axpexp_spec();
  CustomKernel without(spec);
  spec.fallback = axpexp;
  spec.cpu = [](const CpuKernelArguments&) { FAIL() << "ran"; };
  CustomKernel with(spec);
  auto traced = [](const CustomKernel& kernel) {
    return CompiledFunction([&](const Arrays& inputs) {
      return kernel(axpexp_call(inputs[0], inputs[0]));
    });
  };
  auto refused = traced(without);
  EXPECT_ERROR(refused({iota({4})}), "unsupported", "graph for all shapes");
  auto compiled = traced(with);
  EXPECT_EQ(values(compiled({iota({4})})[0])[0], 1);
  EXPECT_EQ(values(compiled({iota({2})})[0]).size(), 2u);
  EXPECT_EQ(compiled.trace_count(), 1);
}

// MLX's own shapeless compile() does not tell that it is tracing.
TEST(CustomKernel, ARawShapelessCompileIsHeldToTheTracedShapes) {
  mx::set_compile_mode(mx::CompileMode::no_fuse);
  CustomKernel kernel(axpexp_spec());
  auto compiled = mx::compile(
      [&](const Arrays& inputs) {
        return kernel(axpexp_call(inputs[0], inputs[0]));
      },
      true);
  EXPECT_EQ(values(compiled({iota({4})})[0])[0], 1);
  EXPECT_EQ(values(compiled({iota({4})})[0])[0], 1);
  EXPECT_ERROR(compiled({iota({5})}), "unsupported", "other shapes");
}

TEST(CustomKernel, RefusesVmap) {
  CustomKernel kernel(axpexp_spec());
  auto mapped = mx::vmap([&](const Arrays& inputs) {
    return kernel(axpexp_call(inputs[0], inputs[1]));
  });
  EXPECT_ERROR(
      mapped({iota({2, 3}), iota({2, 3})}),
      "unsupported",
      "[custom kernel axpexp] a custom kernel has no vmap");
}

TEST(CustomKernel, ItsGradientIsTheFallbacksWithoutOneOfItsOwn) {
  CustomKernelSpec spec = axpexp_spec();
  spec.fallback = axpexp;
  CustomKernel kernel(spec);
  auto loss = [&](const Arrays& inputs) {
    return mx::sum(mx::square(kernel(axpexp_call(inputs[0], inputs[1]))[0]));
  };
  auto plain_loss = [&](const Arrays& inputs) {
    return mx::sum(mx::square(axpexp(axpexp_call(inputs[0], inputs[1]))[0]));
  };
  Arrays at{iota({2, 3}), 0.1f * iota({2, 3})};
  auto found = mx::grad(loss, {0, 1})(at);
  auto wanted = mx::grad(plain_loss, {0, 1})(at);
  for (int i : {0, 1}) {
    EXPECT_TRUE(mx::allclose(found[i], wanted[i], 1e-5).item<bool>()) << i;
  }
  // Forward derivatives too.
  auto direction = mx::ones({2, 3});
  auto tangent = mx::jvp(
      [&](const Arrays& in) { return kernel(axpexp_call(in[0], at[1])); },
      {at[0]},
      {direction});
  EXPECT_EQ(values(tangent.second[0]), std::vector<float>(6, 3));
}

TEST(CustomKernel, ItsOwnGradientGetsInputsCotangentsAndOutputs) {
  CustomKernelSpec spec = axpexp_spec();
  // On purpose not the real gradient: 10 c + z and N y.
  spec.gradient = [](const CustomKernelCall& call,
                     const Arrays& cotangents,
                     const Arrays& outputs) {
    int n = std::get<int>(call.template_values[0].second);
    return Arrays{
        10 * cotangents[0] + outputs[0],
        mx::array(static_cast<float>(n)) * call.inputs[1]};
  };
  for (bool on_fallback : {false, true}) {
    if (on_fallback) {
      spec.cpu = nullptr;
      spec.fallback = axpexp;
    }
    CustomKernel kernel(spec);
    auto [outputs, cotangents] = mx::vjp(
        [&](const Arrays& in) { return kernel(axpexp_call(in[0], in[1])); },
        {mx::ones({2}), mx::zeros({2})},
        {mx::full({2}, 2.0f)});
    EXPECT_EQ(values(outputs[0]), std::vector<float>(2, 4));
    EXPECT_EQ(values(cotangents[0]), std::vector<float>(2, 24));
    EXPECT_EQ(values(cotangents[1]), std::vector<float>(2, 0));
  }
}

TEST(CustomKernel, RefusesGradientsThatAreNotThereOrOfOtherShapes) {
  auto gradient_of = [](const CustomKernelSpec& spec) {
    CustomKernel kernel(spec);
    mx::vjp(
        [&](const Arrays& in) { return kernel(axpexp_call(in[0], in[0])); },
        {mx::ones({2})},
        {mx::ones({2})});
  };
  CustomKernelSpec spec = axpexp_spec();
  EXPECT_ERROR(
      gradient_of(spec),
      "unsupported",
      "[custom kernel axpexp] has neither a gradient nor a fallback");
  spec.gradient = [](const auto&, const auto&, const auto&) {
    return Arrays{mx::ones({2})};
  };
  EXPECT_ERROR(gradient_of(spec), "internal", "must give 2 arrays, found 1");
  spec.gradient = [](const auto&, const auto&, const auto&) {
    return Arrays{mx::ones({2}), mx::ones({2}, mx::float16)};
  };
  EXPECT_ERROR(
      gradient_of(spec),
      "internal",
      "(2) of float32 as array 1, found (2) of float16");
  CustomKernel kernel(axpexp_spec());
  EXPECT_ERROR(
      mx::jvp(
          [&](const Arrays& in) { return kernel(axpexp_call(in[0], in[0])); },
          {mx::ones({2})},
          {mx::ones({2})}),
      "unsupported",
      "forward derivatives");
}

TEST(CustomKernel, RunsTheFallbackWhereItHasNoCode) {
  CustomKernelSpec spec = axpexp_spec();
  spec.cpu = nullptr;
  spec.fallback = axpexp;
  CustomKernel kernel(spec);
  EXPECT_EQ(kernel.missing(Backend::cpu), "has no code");
  mx::array x = iota({4});
  EXPECT_EQ(values(kernel(axpexp_call(x, x))[0])[0], 1);
  // Its gradient is MLX's.
  auto gradient = mx::grad([&](const Arrays& in) {
    return mx::sum(kernel(axpexp_call(in[0], x))[0]);
  })({x});
  EXPECT_EQ(values(gradient[0]), std::vector<float>(4, 3));

  spec.fallback = [](const CustomKernelCall& call) {
    return Arrays{mx::reshape(call.inputs[0], {2, 2})};
  };
  EXPECT_ERROR(
      CustomKernel{spec}(axpexp_call(x, x)),
      "internal",
      "[custom kernel axpexp] the fallback must give (4) of float32");
}

TEST(CustomKernel, ItsFallbackRunsOnTheCallsStream) {
  CustomKernelSpec spec = axpexp_spec();
  mx::Stream stream = mx::new_stream(mx::Device::cpu);
  mx::Stream before = mx::default_stream(mx::Device::cpu);
  spec.fallback = axpexp;
  CustomKernelCall call = axpexp_call(iota({4}), iota({4}));
  call.stream = stream;
  mx::array z = CustomKernel(spec).fallback(call)[0];
  EXPECT_EQ(z.primitive().stream(), stream);
  EXPECT_EQ(mx::default_stream(mx::Device::cpu), before);
  // And so does the kernel.
  z = CustomKernel(spec)(call)[0];
  EXPECT_EQ(z.primitive().stream(), stream);
  EXPECT_EQ(values(z)[0], 1);
  EXPECT_ERROR(
      CustomKernel(axpexp_spec()).fallback(call),
      "unsupported",
      "there is no fallback");
}

TEST(CustomKernel, MayBeCalledOnSeveralThreads) {
  CustomKernel kernel(axpexp_spec());
  std::vector<std::thread> threads;
  std::vector<float> found(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      mx::array x = mx::full({8}, static_cast<float>(i));
      found[i] = values(kernel(axpexp_call(x, mx::zeros({8})))[0])[7];
      mx::clear_streams();
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(found, (std::vector<float>{1, 4, 7, 10}));
}

TEST(CustomKernel, RefusesUseAfterAMove) {
  CustomKernel kernel(axpexp_spec());
  CustomKernel other = std::move(kernel);
  mx::array x = iota({4});
  EXPECT_ERROR(
      kernel(axpexp_call(x, x)),  // NOLINT(bugprone-use-after-move)
      "invalid_request",
      "moved away");
  EXPECT_EQ(values(other(axpexp_call(x, x))[0])[0], 1);
}

}  // namespace
}  // namespace mlxx
