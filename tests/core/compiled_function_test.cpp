#include "mlxx/core/compiled_function.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <mlx/primitives.h>

#include "error_of.h"
#include "mlxx/core/compile.h"
#include "mlxx/core/memory.h"
#include "temporary_folder.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;
using OnChange = CompiledFunctionOptions::OnChange;

Arrays shifted_square(const Arrays& inputs) {
  return {mx::add(mx::multiply(inputs[0], inputs[0]), mx::array(1.0f))};
}

float first_number(CompiledFunction& function, float x) {
  return function({mx::full({1}, x)})[0].item<float>();
}

class CompiledFunctionTest : public testing::Test {
 protected:
  void SetUp() override {
    set_compile_mode("no_fuse");
  }
  void TearDown() override {
    set_compile_mode("no_fuse");
  }
};

TEST_F(CompiledFunctionTest, TracesOncePerDtypeAndDimensions) {
  CompiledFunction square(shifted_square);
  uint64_t before = total_trace_count();
  for (int size : {1, 7, 3, 250}) {
    auto x = mx::arange(size, mx::float32);
    auto y = square({x})[0];
    EXPECT_TRUE(square.ran_compiled());
    ASSERT_EQ(y.shape(), mx::Shape{size});
    EXPECT_TRUE(mx::array_equal(y, shifted_square({x})[0]).item<bool>());
  }
  EXPECT_EQ(square.trace_count(), 1);
  square({mx::ones({2, 5})});
  EXPECT_EQ(square.trace_count(), 2);
  square({mx::ones({4}, mx::float16)});
  EXPECT_EQ(square.trace_count(), 3);
  square({mx::ones({9, 1})});
  square({mx::ones({2}, mx::float16)});
  EXPECT_EQ(square.trace_count(), 3);
  EXPECT_EQ(total_trace_count(), before + 3);
}

TEST_F(CompiledFunctionTest, TracesOncePerShapeIfAsked) {
  CompiledFunction square(shifted_square, {.shapeless = false});
  for (int size : {1, 7, 1, 7, 7}) {
    EXPECT_EQ(square({mx::ones({size})})[0].shape(), mx::Shape{size});
  }
  EXPECT_EQ(square.trace_count(), 2);
}

TEST_F(CompiledFunctionTest, ExpectOneTraceSeesASilentRetrace) {
  CompiledFunction square(shifted_square);
  ExpectOneTrace once(square);
  for (int size = 1; size < 20; ++size) {
    square({mx::ones({size})});
  }
  EXPECT_TRUE(once.holds());
  square.reset();
  square({mx::ones({1})});
  EXPECT_EQ(square.trace_count(), 2);
  EXPECT_TRUE(once.holds());
  square({mx::ones({1, 1})});
  EXPECT_FALSE(once.holds());
  EXPECT_EQ(once.surplus(), 1);
}

TEST_F(CompiledFunctionTest, ATraceThatThrowsLeavesNothingBehind) {
  int calls = 0;
  CompiledFunction fails_twice([&](const Arrays& inputs) {
    EXPECT_TRUE(is_shapeless_tracing());
    if (++calls <= 2) {
      throw std::out_of_range("mine");
    }
    return shifted_square(inputs);
  });
  for (int i = 0; i < 2; ++i) {
    try {
      fails_twice({mx::ones({2})});
      ADD_FAILURE() << "no error";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "mine");
    }
    EXPECT_FALSE(is_shapeless_tracing());
  }
  EXPECT_EQ(first_number(fails_twice, 3), 10);
  EXPECT_EQ(first_number(fails_twice, 4), 17);
  EXPECT_EQ(fails_twice.trace_count(), 3);
  EXPECT_TRUE(ExpectOneTrace(fails_twice).holds());
}

TEST_F(CompiledFunctionTest, AnOperationThatNeedsAShapeIsRefused) {
  CompiledFunction first_two([](const Arrays& inputs) {
    return Arrays{mx::slice(inputs[0], {0}, {2})};
  });
  for (int i = 0; i < 2; ++i) {
    try {
      first_two({mx::ones({5})});
      ADD_FAILURE() << "no error";
    } catch (const std::exception& error) {
      EXPECT_NE(std::strstr(error.what(), "output shapes"), nullptr)
          << error.what();
    }
  }
}

TEST_F(CompiledFunctionTest, EvaluatingInATraceIsAnError) {
  bool evaluate = true;
  CompiledFunction function([&](const Arrays& inputs) {
    mx::array y = shifted_square(inputs)[0];
    if (evaluate) {
      mx::eval(y);
    }
    return Arrays{y};
  });
  try {
    function({mx::ones({2})});
    ADD_FAILURE() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(
        std::strstr(error.what(), "eval an array during function transf"),
        nullptr)
        << error.what();
  }
  evaluate = false;
  EXPECT_EQ(first_number(function, 2), 5);
}

TEST_F(CompiledFunctionTest, ShapelessTracingIsKnownPerFunction) {
  std::vector<bool> seen;
  auto note = [&](const Arrays& inputs) {
    seen.push_back(is_shapeless_tracing());
    return shifted_square(inputs);
  };
  CompiledFunction fixed_inner(note, {.shapeless = false});
  CompiledFunction shapeless_inner(note);
  auto outer = [&](const Arrays& inputs) {
    seen.push_back(is_shapeless_tracing());
    // A trace of its own, for arrays that are no inputs of the outer one.
    auto a = fixed_inner({mx::ones({2})})[0];
    auto b = shapeless_inner({mx::ones({3})})[0];
    // Inlined: part of the outer trace.
    auto c = fixed_inner(inputs)[0];
    auto d = shapeless_inner(inputs)[0];
    seen.push_back(is_shapeless_tracing());
    return Arrays{mx::sum(a), mx::sum(b), c, d};
  };
  CompiledFunction shapeless_outer(outer);
  shapeless_outer({mx::ones({4})});
  EXPECT_EQ(seen, (std::vector<bool>{true, false, true, true, true, true}));
  EXPECT_EQ(fixed_inner.trace_count(), 1);
  EXPECT_EQ(shapeless_inner.trace_count(), 1);

  seen.clear();
  fixed_inner.reset();
  shapeless_inner.reset();
  CompiledFunction fixed_outer(outer, {.shapeless = false});
  fixed_outer({mx::ones({4})});
  EXPECT_EQ(seen, (std::vector<bool>{false, false, true, false, false, false}));
  EXPECT_FALSE(is_shapeless_tracing());
}

TEST_F(CompiledFunctionTest, GradientsGoThroughIt) {
  CompiledFunction square(shifted_square);
  auto loss = [&](const mx::array& x) { return mx::sum(square({x})[0]); };
  auto gradient = mx::grad(loss)(mx::array({1.0f, 2.0f}));
  EXPECT_TRUE(mx::array_equal(gradient, mx::array({2.0f, 4.0f})).item<bool>());
  EXPECT_FALSE(square.ran_compiled());
  EXPECT_EQ(square.trace_count(), 0);
}

TEST_F(CompiledFunctionTest, CallingItselfWhileTracedIsRefused) {
  CompiledFunction* self = nullptr;
  CompiledFunction function([&](const Arrays& inputs) {
    (*self)({mx::ones({2})});
    return inputs;
  });
  self = &function;
  EXPECT_ERROR(function({mx::ones({2})}), "internal", "called itself");
  CompiledFunction resets([&](const Arrays& inputs) {
    self->reset();
    return inputs;
  });
  self = &resets;
  EXPECT_ERROR(resets({mx::ones({2})}), "internal", "reset while");
}

TEST_F(CompiledFunctionTest, SwappedWeightsAreTracedAgainOrRefused) {
  mx::array weight = mx::array(2.0f);
  auto scaled = [&](const Arrays& inputs) {
    return Arrays{mx::multiply(inputs[0], weight)};
  };
  auto stamp = [&] { return static_cast<uint64_t>(weight.id()); };
  CompiledFunction stale(scaled);
  CompiledFunction follows(scaled, {.stamp = stamp});
  CompiledFunction refuses(
      scaled,
      {.stamp = stamp, .on_change = OnChange::refuse});
  for (CompiledFunction* function : {&stale, &follows, &refuses}) {
    EXPECT_EQ(first_number(*function, 3), 6);
  }
  weight = mx::array(10.0f);
  // Why there is a stamp.
  EXPECT_EQ(first_number(stale, 3), 6);
  stale.reset();
  EXPECT_EQ(first_number(stale, 3), 30);
  EXPECT_EQ(first_number(follows, 3), 30);
  EXPECT_EQ(first_number(follows, 4), 40);
  EXPECT_EQ(follows.trace_count(), 2);
  EXPECT_TRUE(ExpectOneTrace(follows).holds());
  EXPECT_ERROR(first_number(refuses, 3), "invalid_request", "were replaced");
  refuses.reset();
  EXPECT_EQ(first_number(refuses, 3), 30);
}

TEST_F(CompiledFunctionTest, DestroyingItGivesItsConstantsBack) {
  constexpr int kCount = 1 << 20;
  constexpr size_t kBytes = kCount * sizeof(float);
  mx::array x = mx::ones({1});
  mx::eval(x);
  size_t before = memory_use().active;
  auto make = [&] {
    mx::array weight = mx::arange(kCount, mx::float32);
    mx::eval(weight);
    return CompiledFunction([weight](const Arrays& inputs) {
      // Made while tracing, so that only the graph holds it.
      mx::array more = mx::add(weight, mx::array(1.0f));
      mx::eval(more);
      return Arrays{
          mx::sum(mx::multiply(inputs[0], weight)),
          mx::sum(mx::multiply(inputs[0], more))};
    });
  };
  {
    CompiledFunction function = make();
    mx::eval(function({x}));
    EXPECT_GE(memory_use().active, before + 2 * kBytes);
    function.reset();
    mx::synchronize();
    EXPECT_GE(memory_use().active, before + kBytes - kBytes / 16);
    EXPECT_LT(memory_use().active, before + kBytes + kBytes / 2);
    mx::eval(function({x}));
  }
  mx::synchronize();
  EXPECT_LT(memory_use().active, before + kBytes / 16);
  // From another thread, and a thousand traces that fail.
  {
    auto function = std::make_unique<CompiledFunction>(make());
    mx::eval((*function)({x}));
    std::thread([&] { function.reset(); }).join();
    mx::synchronize();
  }
  EXPECT_LT(memory_use().active, before + kBytes / 16);
  CompiledFunction failing([](const Arrays&) -> Arrays {
    mx::array weight = mx::full({kCount}, 1.0f);
    mx::eval(weight);
    throw std::runtime_error("no");
  });
  for (int i = 0; i < 1000; ++i) {
    EXPECT_THROW(failing({x}), std::runtime_error);
  }
  mx::synchronize();  // a GPU frees what it is done with later
  EXPECT_LT(memory_use().active, before + kBytes / 16);
}

TEST_F(CompiledFunctionTest, NeverRunsAnotherFunctionsGraph) {
  for (int i = 0; i < 100; ++i) {
    auto by = static_cast<float>(i);
    CompiledFunction function([by](const Arrays& inputs) {
      return Arrays{mx::multiply(inputs[0], mx::array(by))};
    });
    EXPECT_EQ(first_number(function, 2), 2 * by);
  }
}

TEST_F(CompiledFunctionTest, BelongsToOneThread) {
  CompiledFunction function(shifted_square);
  std::thread([&] {
    EXPECT_EQ(function({mx::ones({1})})[0].item<float>(), 2);
  }).join();
  EXPECT_ERROR(function({mx::ones({1})}), "internal", "from another");
}

TEST_F(CompiledFunctionTest, ThereMustBeAFunction) {
  EXPECT_ERROR(CompiledFunction(ArrayFunction{}), "internal", "no function");
}

// What the fused operation of shifted_square is called, or "Add".
std::string kind_of(CompiledFunction& function, int dims) {
  mx::array y = function({mx::ones(mx::Shape(dims, 1))})[0];
  return y.primitive().name();
}

TEST_F(CompiledFunctionTest, AChangedModeIsForLaterTracesOnly) {
  TemporaryFolder home;
  setenv("MLXX_HOME", home.path().c_str(), 1);
  CompiledFunction function(shifted_square);
  EXPECT_EQ(kind_of(function, 1), "Add");
  set_compile_mode("enabled");
  EXPECT_EQ(kind_of(function, 1), "Add");
  EXPECT_NE(kind_of(function, 2).find("Compiled"), std::string::npos);
  set_compile_mode("no_fuse");
  EXPECT_NE(kind_of(function, 2).find("Compiled"), std::string::npos);
  EXPECT_EQ(kind_of(function, 3), "Add");
  EXPECT_EQ(function.trace_count(), 3);

  set_compile_mode("disabled");
  EXPECT_EQ(kind_of(function, 4), "Add");
  EXPECT_EQ(kind_of(function, 4), "Add");
  EXPECT_FALSE(function.ran_compiled());
  EXPECT_EQ(function.trace_count(), 3);
  EXPECT_NE(kind_of(function, 2).find("Compiled"), std::string::npos);
  EXPECT_TRUE(function.ran_compiled());

  // Not simplified: two equal operations stay two, which are one otherwise.
  auto sorted_twice = [](const Arrays& inputs) {
    return Arrays{mx::concatenate({mx::sort(inputs[0]), mx::sort(inputs[0])})};
  };
  set_compile_mode("no_simplify");
  CompiledFunction two(sorted_twice);
  auto apart = two({mx::ones({2})})[0].inputs();
  EXPECT_NE(apart[0].id(), apart[1].id());
  set_compile_mode("no_fuse");
  CompiledFunction one(sorted_twice);
  auto merged = one({mx::ones({2})})[0].inputs();
  EXPECT_EQ(merged[0].id(), merged[1].id());
}

TEST_F(CompiledFunctionTest, AnUnknownModeIsRefused) {
  for (const char* name : {"", "fast", "ENABLED", "no fuse"}) {
    EXPECT_ERROR(
        set_compile_mode(name),
        "invalid_request",
        "[compile mode] must be 'disabled', 'no_simplify', 'no_fuse' or "
        "'enabled', found '" +
            std::string(name));
  }
}

}  // namespace
}  // namespace mlxx
