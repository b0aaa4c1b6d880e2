#include <gtest/gtest.h>

#include "counting_primitive.h"
#include "mlxx/core/compiled_function.h"
#include "same_gradients.h"

namespace mlxx {
namespace {

// Two blocks of one shape, the weight captured.
Arrays two_blocks(Wrap wrap, const Arrays& arguments) {
  auto block = wrap([&](const Arrays& in) -> Arrays {
    mx::array h = mx::sin(mx::matmul(in[0], arguments[1]));
    return {h * mx::exp(in[0] * 0.1f) + in[0], mx::sum(h, -1)};
  });
  Arrays first = block({arguments[0]});
  Arrays second = block({first[0]});
  return {second[0], first[1]};
}

Arrays two_blocks_loss(Wrap wrap, const Arrays& arguments) {
  return {loss_of(two_blocks(wrap, arguments))};
}

Arrays some_arguments(int rows = 4) {
  return {numbers({rows, 8}, 1), numbers({8, 8}, 2) * 0.3f};
}

// The function's gradients and its loss.
ArrayFunction gradient_step(Wrap wrap) {
  return [wrap](const Arrays& in) {
    auto [loss, gradients] = mx::value_and_grad(
        [&](const Arrays& tracers) { return two_blocks_loss(wrap, tracers); },
        std::vector<int>{0, 1})(in);
    gradients.push_back(loss[0]);
    return gradients;
  };
}

void expect_same_arrays(const Arrays& a, const Arrays& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bits(a[i], b[i])) << "array " << i;
  }
}

// Without fusing, which would run a C++ compiler.
class NoFuse {
 public:
  NoFuse() {
    mx::set_compile_mode(mx::CompileMode::no_fuse);
  }
  ~NoFuse() {
    mx::set_compile_mode(mx::CompileMode::enabled);
  }
};

class CheckpointCompiled : public ::testing::TestWithParam<bool> {
  NoFuse no_fuse_;
};

TEST_P(CheckpointCompiled, TheWholeStep) {
  bool shapeless = GetParam();
  auto plain = gradient_step(inlined);
  auto compiled = mx::compile(gradient_step(checkpointed), shapeless);
  expect_same_arrays(plain(some_arguments()), compiled(some_arguments()));
  // Another shape: the same trace if shapeless.
  expect_same_arrays(plain(some_arguments(6)), compiled(some_arguments(6)));
}

TEST_P(CheckpointCompiled, TheWholeStepAsACompiledFunction) {
  auto plain = gradient_step(inlined);
  CompiledFunction compiled(
      gradient_step(checkpointed),
      {.shapeless = GetParam()});
  for (int rows : {4, 6, 4}) {
    expect_same_arrays(
        plain(some_arguments(rows)),
        compiled(some_arguments(rows)));
    EXPECT_TRUE(compiled.ran_compiled());
  }
  EXPECT_EQ(compiled.trace_count(), GetParam() ? 1 : 2);
}

TEST_P(CheckpointCompiled, OnlyTheForwardPass) {
  bool shapeless = GetParam();
  auto compiled = mx::compile(
      [](const Arrays& in) { return two_blocks(checkpointed, in); },
      shapeless);
  for (int rows : {4, 6}) {
    Arrays in = some_arguments(rows);
    expect_same_arrays(two_blocks(inlined, in), compiled(in));
  }
  // Differentiated, MLX inlines what was compiled.
  auto loss = [&](const Arrays& in) -> Arrays {
    return {loss_of(compiled(in))};
  };
  expect_same(
      gradients_of(
          [](const Arrays& in) { return two_blocks_loss(inlined, in); },
          some_arguments()),
      gradients_of(loss, some_arguments()));
}

INSTANTIATE_TEST_SUITE_P(Shapeless, CheckpointCompiled, ::testing::Bool());

// No optimizer may take the second making for the first, or nothing would be
// dropped.
TEST(CheckpointTransforms, StillComputedTwiceWhenCompiled) {
  NoFuse no_fuse;
  Counter counter;
  auto step = mx::compile([&](const Arrays& in) {
    return mx::value_and_grad([&](const Arrays& tracers) -> Arrays {
             auto block = checkpointed([&](const Arrays& x) -> Arrays {
               return {mx::exp(counter(mx::square(x[0])))};
             });
             return {loss_of(block(tracers))};
           })(in)
        .second;
  });
  mx::eval(step({numbers({8}, 1)}));
  EXPECT_EQ(counter.count(), 2);
  mx::eval(step({numbers({8}, 2)}));
  EXPECT_EQ(counter.count(), 4);
}

// A compiled function inside: MLX inlines it while it traces.
TEST(CheckpointTransforms, CompiledInside) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto compiled = mx::compile([](const Arrays& in) -> Arrays {
      return {mx::sin(mx::matmul(in[0], in[1])) * in[0]};
    });
    auto block =
        wrap([&](const Arrays& in) { return compiled({in[0], arguments[1]}); });
    return {loss_of(block(block({arguments[0]})))};
  };
  expect_as_inlined(loss, some_arguments(8));
}

TEST(CheckpointTransforms, SecondDerivatives) {
  auto penalty = [](Wrap wrap) {
    return [wrap](const Arrays& in) -> Arrays {
      auto gradients = mx::grad(
          [&](const Arrays& tracers) {
            return two_blocks_loss(wrap, tracers)[0];
          },
          std::vector<int>{0, 1})(in);
      return {
          mx::sum(mx::square(gradients[0])) +
          mx::sum(mx::square(gradients[1]))};
    };
  };
  Gradients plain = gradients_of(penalty(inlined), some_arguments());
  Gradients twice = gradients_of(penalty(checkpointed), some_arguments());
  EXPECT_TRUE(same_bits(plain.loss, twice.loss));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(mx::allclose(plain.gradients[i], twice.gradients[i], 1e-4, 1e-4)
                    .item<bool>());
  }
}

// A derivative inside the function that is differentiated.
TEST(CheckpointTransforms, DerivativeInside) {
  auto loss = [](Wrap wrap, const Arrays& arguments) -> Arrays {
    auto block = wrap([&](const Arrays& in) -> Arrays {
      auto energy = [&](const mx::array& x) {
        return mx::sum(mx::sin(mx::matmul(x, arguments[1])));
      };
      return {in[0] - mx::grad(energy)(in[0])};
    });
    return {loss_of(block(block({arguments[0]})))};
  };
  expect_as_inlined(loss, some_arguments());
}

TEST(CheckpointTransforms, ForwardMode) {
  auto derivative = [](Wrap wrap) {
    Arrays in = some_arguments();
    auto [outputs, tangents] = mx::jvp(
        [&](const Arrays& tracers) { return two_blocks(wrap, tracers); },
        in,
        {numbers({4, 8}, 5), numbers({8, 8}, 6)});
    outputs.insert(outputs.end(), tangents.begin(), tangents.end());
    return outputs;
  };
  expect_same_arrays(derivative(inlined), derivative(checkpointed));
}

TEST(CheckpointTransforms, Vmap) {
  auto rows = [](Wrap wrap) {
    return mx::vmap(
        [wrap](const Arrays& in) { return two_blocks(wrap, in); },
        {0, -1},
        {0, 0});
  };
  Arrays in = {numbers({5, 4, 8}, 1), some_arguments()[1]};
  expect_same_arrays(rows(inlined)(in), rows(checkpointed)(in));
  auto loss = [&](Wrap wrap, const Arrays& arguments) -> Arrays {
    return {loss_of(rows(wrap)(arguments))};
  };
  expect_as_inlined(loss, in);
  // A gradient for each row.
  auto by_row = [](Wrap wrap) {
    return mx::vmap(gradient_step(wrap), {0, -1}, {0, 0, 0});
  };
  expect_same_arrays(by_row(inlined)(in), by_row(checkpointed)(in));
}

}  // namespace
}  // namespace mlxx
