// The backward pass of a network in two segments, one after the other: each
// gets the cotangents of its outputs from the one above, so that never more
// than one segment's graph and values are held. The numbers are those of one
// backward pass through everything.

#include <cstdio>
#include <exception>
#include <vector>

#include <mlxx/base/error.h>
#include <mlxx/core/autograd.h>
#include <mlxx/core/host_values.h>

namespace mx = mlx::core;
using Arrays = std::vector<mx::array>;

// {x [8, 16], w [16, 32]} -> {hidden [8, 32], gate [8, 32]}
Arrays lower(const Arrays& p) {
  mx::array product = mx::matmul(p[0], p[1]);
  return {mx::tanh(product), mx::sigmoid(product)};
}

// {hidden, gate, w [32, 4]} -> {loss}
Arrays upper(const Arrays& p) {
  return {mx::mean(mx::square(mx::matmul(p[0] * p[1], p[2])))};
}

int main() try {
  mx::array x = mx::random::normal({8, 16}, mx::random::key(1));
  mx::array w1 = mx::random::normal({16, 32}, mx::random::key(2));
  mx::array w2 = mx::random::normal({32, 4}, mx::random::key(3));

  // Forward: only what crosses the border is kept.
  Arrays border = lower({x, w1});
  mx::eval(border);

  // Backward, from the top. The loss has a cotangent of 1.
  mlxx::Vjp upper_vjp(upper, 1);
  auto top = upper_vjp.apply({border[0], border[1], w2}, {mx::array(1.0f)});
  mx::eval(top.cotangents);
  mlxx::Vjp lower_vjp(lower, 2);
  auto bottom =
      lower_vjp.apply({x, w1}, {top.cotangents[0], top.cotangents[1]});
  Arrays ours = {bottom.cotangents[1], top.cotangents[2]};  // of w1 and w2

  auto whole = [&](const Arrays& w) {
    Arrays between = lower({x, w[0]});
    return upper({between[0], between[1], w[1]});
  };
  auto expected = mlxx::ValueAndGrad(whole, {0, 1}).apply({w1, w2});
  bool right = true;
  for (size_t i = 0; i < ours.size(); ++i) {
    bool same = mlxx::item_of<bool>(
        mx::allclose(ours[i], expected.gradients[i], 1e-5, 1e-7),
        "segments");
    std::printf("gradient of w%zu: %s\n", i + 1, same ? "right" : "WRONG");
    right = right && same;
  }
  try {
    lower_vjp.apply({x, w1}, {top.cotangents[0]});
    right = false;
  } catch (const mlxx::Error& error) {
    std::printf("%s\n", error.what());
  }
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
