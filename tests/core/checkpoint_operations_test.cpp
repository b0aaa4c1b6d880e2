#include <cmath>

#include <gtest/gtest.h>

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/custom_vjp.h"
#include "same_gradients.h"

namespace mlxx {
namespace {

// Checkpoints around the operations that a network is made of.

TEST(CheckpointOperations, TransformerBlocksWithAdapters) {
  constexpr int kHeads = 2;
  constexpr int kWidth = 8;
  auto attention = [](const mx::array& x, const Arrays& adapter, int block) {
    auto project = [&](int which) {
      mx::array w = numbers({kWidth, kWidth}, 10 * block + which) * 0.3f;
      mx::array y = mx::matmul(x, mx::transpose(w)) +
          mx::matmul(mx::matmul(x, adapter[0]), adapter[1]);
      return mx::transpose(
          mx::reshape(y, {2, 5, kHeads, kWidth / kHeads}),
          {0, 2, 1, 3});
    };
    mx::array q =
        mx::fast::rope(project(0), kWidth / kHeads, false, 1e4f, 1.0f, 0);
    mx::array k =
        mx::fast::rope(project(1), kWidth / kHeads, false, 1e4f, 1.0f, 0);
    mx::array y = mx::fast::scaled_dot_product_attention(
        q,
        k,
        project(2),
        0.5f,
        "causal");
    return mx::reshape(mx::transpose(y, {0, 2, 1, 3}), {2, 5, kWidth});
  };
  for (mx::Dtype dtype : {mx::float32, mx::bfloat16}) {
    auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
      mx::array h =
          mx::take(arguments[0], mx::array({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}), 0);
      h = mx::reshape(h, {2, 5, kWidth});
      for (int i = 0; i < 3; ++i) {
        // The adapter of each block is captured.
        Arrays adapter = {arguments[1 + 2 * i], arguments[2 + 2 * i]};
        auto block = wrap([&attention, adapter, i](const Arrays& in) -> Arrays {
          mx::array norm = mx::fast::rms_norm(in[0], std::nullopt, 1e-5f);
          mx::array x = in[0] + attention(norm, adapter, i);
          mx::array y =
              mx::fast::layer_norm(x, std::nullopt, std::nullopt, 1e-5f);
          return {x + y * mx::sigmoid(y)};
        });
        h = block({h})[0];
      }
      mx::array logits = mx::matmul(h, mx::transpose(arguments[0]));
      return {mx::mean(mx::logsumexp(mx::astype(logits, mx::float32), -1))};
    };
    Arrays arguments = {mx::astype(numbers({10, kWidth}, 1), dtype)};
    for (int i = 0; i < 3; ++i) {
      arguments.push_back(mx::astype(numbers({kWidth, 2}, 50 + i), dtype));
      arguments.push_back(mx::astype(numbers({2, kWidth}, 60 + i), dtype));
    }
    expect_as_inlined(loss, arguments);
  }
}

// sine and cosine at once, with a gradient that reads both.
CustomKernel sine_and_cosine() {
  return CustomKernel(CustomKernelSpec{
      .name = "sine_and_cosine",
      .input_names = {"x"},
      .output_names = {"s", "c"},
      .cpu =
          [](const CpuKernelArguments& arguments) {
            const float* x = arguments.inputs[0].as<float>();
            for (size_t i = 0; i < arguments.inputs[0].size; ++i) {
              arguments.outputs[0].as<float>()[i] = std::sin(x[i]);
              arguments.outputs[1].as<float>()[i] = std::cos(x[i]);
            }
          },
      .gradient = [](const CustomKernelCall&,
                     const Arrays& cotangents,
                     const Arrays& outputs) -> Arrays {
        return {cotangents[0] * outputs[1] - cotangents[1] * outputs[0]};
      }});
}

TEST(CheckpointOperations, CustomKernelWithSeveralOutputs) {
  CustomKernel kernel = sine_and_cosine();
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      mx::array x = in[0] * arguments[1];
      Arrays y = kernel(
          {.inputs = {x},
           .output_shapes = {x.shape(), x.shape()},
           .output_dtypes = {mx::float32, mx::float32},
           .grid = {static_cast<int>(x.size())},
           .threadgroup = {32},
           .stream = mx::Device::cpu});
      return {y[1] * x, y[0], mx::square(y[1])};
    });
    Arrays y = block({arguments[0]});
    return {loss_of({y[1], block({y[0]})[2]})};
  };
  expect_as_inlined(loss, {numbers({6, 4}, 1), numbers({6, 4}, 2)});
}

TEST(CheckpointOperations, CustomGradient) {
  auto clipped = custom_vjp(
      "clipped",
      [](const Arrays& in) -> Arrays { return {mx::exp(in[0]), in[1] * 2.0f}; },
      [](const Arrays& primals,
         const Arrays& cotangents,
         const Arrays& outputs) -> Arrays {
        return {
            mx::clip(cotangents[0], mx::array(-0.5f), mx::array(0.5f)) *
                outputs[0],
            cotangents[1] * primals[0]};
      });
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      Arrays y = clipped({mx::sin(in[0]), arguments[1]});
      return {y[0] * y[1]};
    });
    return {loss_of(block(block({arguments[0]})))};
  };
  expect_as_inlined(loss, {numbers({6, 4}, 1), numbers({6, 4}, 2)});
}

// Without a gradient, but of several outputs.
TEST(CheckpointOperations, Decompositions) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      auto [q, r] = mx::linalg::qr(mx::stop_gradient(in[0]), mx::Device::cpu);
      return {mx::matmul(q, arguments[1]) + in[0], r};
    });
    Arrays y = block({arguments[0]});
    return {loss_of({y[0], mx::matmul(y[1], y[0])})};
  };
  expect_as_inlined(loss, {numbers({5, 5}, 1), numbers({5, 5}, 2)});
}

TEST(CheckpointOperations, Convolution) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      mx::array y = mx::conv1d(in[0], arguments[1], 1, 1);
      return {mx::cumsum(y, 1) + mx::slice(in[0], {0, 0, 0}, {2, 6, 3})};
    });
    return {loss_of(block(block({arguments[0]})))};
  };
  expect_as_inlined(loss, {numbers({2, 6, 3}, 1), numbers({3, 3, 3}, 2)});
}

}  // namespace
}  // namespace mlxx
