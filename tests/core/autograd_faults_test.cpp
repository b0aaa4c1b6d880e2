// Every step of the transforms made to fail, again and again: what had been
// built must be freed, and the object must work afterwards.
#include <gtest/gtest.h>

#include <map>

#include "mlxx/core/autograd.h"
#include "mlxx/core/custom_vjp.h"
#include "mlxx/core/memory.h"
#include "tests/core/error_of.h"
#include "tests/core/fault_point.h"
#include "tests/core/two_layers.h"
#include "tests/kernels/relative_error.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

constexpr int kCalls = 1000;

// Held in MLX's memory at once, unlike the result of an operation.
mx::array held() {
  std::vector<float> numbers(1024, 2.0f);
  return mx::array(numbers.begin(), {1024});
}

// Two outputs of two arrays, with memory of its own in the graph.
Arrays function(const Arrays& x) {
  mx::array scaled = mx::multiply(x[0], held());
  mx::eval(scaled);
  return {mx::multiply(scaled, x[1]), mx::sum(scaled)};
}

Arrays loss(const Arrays& x) {
  return {mx::sum(function(x)[0])};
}

// One use of each class, from construction to numbers.
using Use = std::function<Arrays()>;

Arrays use_value_and_grad() {
  ArrayFunction captures = [kept = held()](const Arrays& x) {
    return loss({x[0], mx::multiply(x[1], kept)});
  };
  return ValueAndGrad(captures, {1, 0}).apply({held(), held()}).gradients;
}

Arrays use_vjp() {
  ArrayFunction captures = [kept = held()](const Arrays& x) {
    return function({x[0], mx::multiply(x[1], kept)});
  };
  return Vjp(captures, 2)
      .apply({held(), held()}, {held(), mx::array(1.0f)})
      .cotangents;
}

Arrays use_custom_vjp() {
  auto custom = custom_vjp(
      "custom",
      [kept = held()](const Arrays& x) {
        return function({x[0], mx::multiply(x[1], kept)});
      },
      [kept = held()](const Arrays& x, const Arrays& c, const Arrays& y) {
        mx::array both = mx::add(mx::multiply(c[0], kept), c[1]);
        return Arrays{mx::multiply(both, x[1]), mx::multiply(both, y[0])};
      });
  return Vjp(custom, 2)
      .apply({held(), held()}, {held(), mx::array(1.0f)})
      .cotangents;
}

Arrays use_parameter_gradients() {
  TwoLayers layers;
  auto before = layers.ids();
  auto captures = [&, kept = held()](const Arrays& x) {
    return Arrays{mx::multiply(layers.loss()(x)[0], mx::sum(kept))};
  };
  Arrays gradients;
  try {
    auto result =
        ParameterGradients(layers.tree(), captures).apply({layers.batch()});
    for (const auto& [name, gradient] : result.gradients) {
      gradients.push_back(gradient);
    }
  } catch (...) {
    EXPECT_EQ(layers.ids(), before);
    throw;
  }
  return gradients;
}

const std::map<std::string_view, Use> kUses = {
    {"value_and_grad", use_value_and_grad},
    {"vjp", use_vjp},
    {"custom_vjp", use_custom_vjp},
    {"parameter_gradients", use_parameter_gradients},
};

const Use& use_of(std::string_view step) {
  return kUses.at(step.substr(0, step.find('.')));
}

void expect_same(const Arrays& a, const Arrays& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bits(a[i], b[i])) << i;
  }
}

// MLX's CPU stream frees what a task used when the task is over.
size_t active_bytes() {
  mx::synchronize();
  return memory_use().active;
}

TEST(AutogradFaults, FailingCallsKeepNoMemory) {
  for (std::string_view step : fault_steps()) {
    const Use& use = use_of(step);
    Arrays expected = use();
    mx::eval(expected);
    size_t before = active_bytes();
    {
      ScopedFault fault(step);
      for (int call = 0; call < kCalls; ++call) {
        std::string error = error_of(use);
        ASSERT_EQ(
            error,
            fmt::format(
                "internal: [MLXX_FAULT] the step '{}' was made to fail",
                step));
      }
    }
    EXPECT_EQ(active_bytes(), before) << step;
    expect_same(use(), expected);
  }
}

// The same for failures that happen outside of tests.
TEST(AutogradFaults, RealFailuresKeepNoMemory) {
  Arrays x = {held(), held()};
  auto throwing = [](const Arrays& x) -> Arrays {
    mx::array graph = loss(x)[0];
    throw std::runtime_error("stopped");
  };
  auto without_gradient = [](const Arrays& x) {
    mx::array matrix = mx::reshape(mx::multiply(x[0], held()), {32, 32});
    auto cpu = mx::Device(mx::Device::cpu);
    mx::array q = mx::linalg::qr(matrix, cpu).first;
    return Arrays{mx::add(mx::sum(q), loss(x)[0])};
  };
  auto two_losses = [](const Arrays& x) { return function(x); };
  auto wrong_gradient = custom_vjp(
      "custom",
      loss,
      [](const Arrays&, const Arrays&, const Arrays&) {
        return Arrays{held()};
      });
  for (const ArrayFunction& failing : {
           ArrayFunction(throwing),
           ArrayFunction(without_gradient),
           ArrayFunction(two_losses),
           wrong_gradient,
       }) {
    ValueAndGrad gradient(failing, {0, 1});
    size_t before = active_bytes();
    for (int call = 0; call < kCalls; ++call) {
      EXPECT_ANY_THROW(gradient.apply(x));
    }
    EXPECT_EQ(active_bytes(), before);
  }
}

// One object that fails at each of its steps and works in between.
TEST(AutogradFaults, ObjectsOutliveTheirFailures) {
  Arrays x = {held(), held()};
  ValueAndGrad gradient(loss, {1, 0});
  Vjp vjp(function, 2);
  TwoLayers layers;
  ParameterGradients parameters(layers.tree(), layers.loss());
  const std::map<std::string_view, Use> uses = {
      {"value_and_grad.apply", [&] { return gradient.apply(x).gradients; }},
      {"vjp.apply",
       [&] { return vjp.apply(x, {x[0], mx::array(1.0f)}).cotangents; }},
      {"parameter_gradients.apply",
       [&] {
         return Arrays{
             parameters.apply({layers.batch()}).gradients[0].gradient};
       }},
  };
  for (const auto& [prefix, use] : uses) {
    int failed = 0;
    Arrays expected = use();
    for (std::string_view step : fault_steps()) {
      if (step.starts_with(prefix)) {
        ++failed;
        ScopedFault fault(step);
        EXPECT_ERROR(use(), "internal", step);
      }
      expect_same(use(), expected);
    }
    EXPECT_GE(failed, 4) << prefix;
  }
}

// The test above must see memory that a failed call keeps.
TEST(AutogradFaults, KeptMemoryWouldBeSeen) {
  size_t before = active_bytes();
  Arrays leaked;
  auto leaking = [&](const Arrays& x) {
    leaked.push_back(held());
    return loss(x);
  };
  ScopedFault fault("value_and_grad.apply.loss");
  EXPECT_ERROR(
      ValueAndGrad(leaking, {0}).apply({held(), held()}),
      "internal",
      "made to fail");
  EXPECT_EQ(active_bytes(), before + 4096);
}

TEST(AutogradFaults, AnUnknownStepIsRefused) {
  ScopedFault fault("vjp.aply.trace");
  EXPECT_ERROR(
      use_vjp(),
      "invalid_request",
      "[MLXX_FAULT] there is no step 'vjp.aply.trace'");
}

}  // namespace
}  // namespace mlxx
