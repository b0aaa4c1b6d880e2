// What is thrown inside and by the transforms, and that they work afterwards.
#include <gtest/gtest.h>

#include "mlxx/core/autograd.h"
#include "mlxx/core/custom_vjp.h"
#include "tests/core/error_of.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;

struct OwnError : std::runtime_error {
  OwnError(int code, const void** address)
      : std::runtime_error("own"), code(code) {
    *address = this;
  }
  int code;
};

Arrays sum_of_squares(const Arrays& x) {
  return {mx::sum(mx::square(x[0]))};
}

const Arrays kInput = {mx::array({1.0f, 2.0f})};
const Arrays kOne = {mx::array(1.0f)};

// Each transform with a function that can be told what to do.
struct Case {
  const char* name;
  std::function<Arrays(const ArrayFunction&)> apply;
};
const Case kCases[] = {
    {"value_and_grad",
     [](const ArrayFunction& f) {
       return ValueAndGrad(f, {0}).apply(kInput).gradients;
     }},
    {"vjp",
     [](const ArrayFunction& f) {
       return Vjp(f, 1).apply(kInput, kOne).cotangents;
     }},
};

TEST(AutogradErrors, WhatTheFunctionThrowsIsTheSameObject) {
  for (const auto& [name, apply] : kCases) {
    const void* thrown = nullptr;
    try {
      apply([&](const Arrays&) -> Arrays { throw OwnError(7, &thrown); });
      ADD_FAILURE() << name << " did not throw";
    } catch (const OwnError& error) {
      EXPECT_EQ(error.code, 7);
      EXPECT_EQ(&error, thrown) << name;
    }
    // Not even an exception.
    EXPECT_THROW(apply([](const Arrays&) -> Arrays { throw 42; }), int);
    auto out_of_memory = [](const Arrays&) -> Arrays {
      throw std::bad_alloc();
    };
    EXPECT_THROW(apply(out_of_memory), std::bad_alloc);
  }
}

TEST(AutogradErrors, WhatMlxThrowsInTheFunctionStaysMlxs) {
  for (const auto& [name, apply] : kCases) {
    try {
      apply([](const Arrays& x) {
        return Arrays{mx::sum(mx::add(x[0], mx::ones({3})))};
      });
      ADD_FAILURE() << name << " did not throw";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("broadcast"), std::string::npos);
    }
  }
}

TEST(AutogradErrors, AnOperationWithoutGradientIsNamed) {
  auto inverse = [](const Arrays& x) {
    auto cpu = mx::Device(mx::Device::cpu);
    return Arrays{mx::sum(mx::linalg::inv(mx::diag(x[0]), cpu))};
  };
  auto index = [](const Arrays& x) {
    return Arrays{mx::sum(mx::take(x[0], mx::astype(x[0], mx::int32)))};
  };
  for (const auto& [name, apply] : kCases) {
    EXPECT_ERROR(
        apply(inverse),
        "unsupported",
        fmt::format("[{}] [Primitive::vjp] Not implemented for Inverse", name));
    EXPECT_ERROR(
        apply(index),
        "unsupported",
        "[gather] Cannot calculate VJP with respect to indices");
  }
}

TEST(AutogradErrors, AGradientCallbackMayThrowItsOwn) {
  const void* thrown = nullptr;
  auto function = custom_vjp(
      "squares",
      sum_of_squares,
      [&](const Arrays&, const Arrays&, const Arrays&) -> Arrays {
        throw OwnError(8, &thrown);
      });
  for (const auto& [name, apply] : kCases) {
    try {
      apply(function);
      ADD_FAILURE() << name << " did not throw";
    } catch (const OwnError& error) {
      EXPECT_EQ(&error, thrown) << name;
    }
  }
}

// One object, told to fail now and then.
TEST(AutogradErrors, ObjectsWorkAfterAFailure) {
  bool failing = false;
  auto function = [&](const Arrays& x) {
    Arrays y = sum_of_squares(x);
    if (failing) {
      fail(ErrorKind::cancelled, "loss", "stopped");
    }
    return y;
  };
  ValueAndGrad gradient(function, {0});
  Vjp vjp(function, 1);
  for (int round = 0; round < 3; ++round) {
    failing = true;
    EXPECT_ERROR(gradient.apply(kInput), "cancelled", "[loss] stopped");
    EXPECT_ERROR(vjp.apply(kInput, kOne), "cancelled", "[loss] stopped");
    EXPECT_ERROR(gradient.apply({}), "invalid_request", "past the 0 arguments");
    EXPECT_ERROR(vjp.apply(kInput, {}), "invalid_request", "0 cotangents");
    failing = false;
    mx::array expected({2.0f, 4.0f});
    for (const auto& got :
         {gradient.apply(kInput).gradients[0],
          vjp.apply(kInput, kOne).cotangents[0]}) {
      EXPECT_TRUE(mx::array_equal(got, expected).item<bool>());
    }
  }
}

// A failed trace may not leave MLX believing that it still traces.
TEST(AutogradErrors, NothingIsTracedAfterAFailure) {
  for (const auto& [name, apply] : kCases) {
    EXPECT_THROW(apply([](const Arrays&) -> Arrays { throw 42; }), int);
    mx::array y = mx::square(kInput[0]);
    mx::eval(y);
    EXPECT_FALSE(y.is_tracer());
    EXPECT_FALSE(y.has_primitive()) << name;  // evaluated, so detached
    EXPECT_FALSE(kInput[0].is_tracer());
  }
}

TEST(AutogradErrors, AMovedObjectSaysSo) {
  ValueAndGrad gradient(sum_of_squares, {0});
  ValueAndGrad taken = std::move(gradient);
  EXPECT_ERROR(gradient.apply(kInput), "invalid_request", "used after a move");
  EXPECT_EQ(taken.apply(kInput).loss.item<float>(), 5);
  Vjp vjp(sum_of_squares, 1);
  Vjp moved = std::move(vjp);
  EXPECT_ERROR(vjp.apply(kInput, kOne), "invalid_request", "used after a move");
  EXPECT_EQ(moved.apply(kInput, kOne).outputs[0].item<float>(), 5);
}

}  // namespace
}  // namespace mlxx
