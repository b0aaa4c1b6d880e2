// A step that is traced once and serves every length, follows a weight that is
// swapped, and says so if it was traced more often than it should.

#include <cstdio>
#include <exception>
#include <vector>

#include <mlxx/core/compile.h>
#include <mlxx/core/compiled_function.h>
#include <mlxx/core/host_values.h>
#include <mlxx/core/weights_stamp.h>

namespace mx = mlx::core;
using Arrays = std::vector<mx::array>;

int main() try {
  mlxx::apply_compile_mode();  // as MLXX_COMPILE says
  mlxx::Parameter weight({4, 4}, mlxx::Parameter::Kind::matrix);
  auto set_weight = [&](mx::array value) {
    value.eval();  // else what it is made of becomes part of the graph
    weight.set({value, {}, {}});
  };
  set_weight(mx::eye(4));
  mlxx::WeightsStamp stamp;
  stamp.add(weight);

  // x [length, 4]. The weight is captured: a constant of the graph.
  auto function = [&](const Arrays& in) {
    return Arrays{mx::tanh(mx::matmul(in[0], weight.value()))};
  };
  mlxx::CompiledFunction step(function, {.stamp = stamp});
  mlxx::ExpectOneTrace expected(step);
  auto is_right = [&](int length) {
    mx::array x = mx::random::normal({length, 4});
    mx::array ours = step({x})[0];
    return mlxx::item_of<bool>(mx::allclose(ours, function({x})[0]), "step");
  };

  bool right = true;
  for (int length = 1; length <= 500; ++length) {
    right = right && is_right(length);
  }
  std::printf(
      "500 lengths, ran compiled: %s\n",
      step.ran_compiled() ? "yes" : "no");
  std::printf(
      "traces: %d, surplus: %d\n",
      step.trace_count(),
      expected.surplus());

  // A changed stamp allows one more trace.
  set_weight(mx::full({4, 4}, 0.5f));
  right = right && is_right(3);
  std::printf(
      "new weight: %d traces, one expected: %s\n",
      step.trace_count(),
      expected.holds() ? "yes" : "no");

  // Another dtype is another graph, which a decode step should not see.
  step({mx::ones({3, 4}, mx::float16)});
  std::printf("float16: surplus %d\n", expected.surplus());

  // What cannot be traced says why, and the object can still be used.
  mlxx::CompiledFunction reads([](const Arrays& in) {
    return Arrays{in[0] * mlxx::item_of<float>(mx::sum(in[0]), "reads")};
  });
  try {
    reads({mx::ones({3})});
    return 1;
  } catch (const std::exception& error) {
    std::printf("%.59s...\n", error.what());
  }
  std::printf("values: %s\n", right ? "right" : "WRONG");
  return right && step.trace_count() == 3 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
