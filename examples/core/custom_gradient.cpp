// Attention with a backward pass written by hand, which computes the
// probabilities again instead of keeping them, against MLX's own gradient.

#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include <mlxx/core/autograd.h>
#include <mlxx/core/custom_vjp.h>
#include <mlxx/core/host_values.h>

namespace mx = mlx::core;
using Arrays = std::vector<mx::array>;

constexpr int kDim = 16;
const float kScale = 1 / std::sqrt(static_cast<float>(kDim));

mx::array probabilities(const mx::array& q, const mx::array& k) {
  return mx::softmax(mx::matmul(q, mx::swapaxes(k, -1, -2)) * kScale, -1);
}

// q, k, v [batch, heads, length, kDim] -> the same shape.
Arrays forward(const Arrays& qkv) {
  return {
      mx::fast::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], kScale)};
}

Arrays
gradient(const Arrays& qkv, const Arrays& cotangents, const Arrays& outputs) {
  const mx::array& q = qkv[0];
  const mx::array& k = qkv[1];
  const mx::array& v = qkv[2];
  const mx::array& d_out = cotangents[0];
  auto transposed = [](const mx::array& a) { return mx::swapaxes(a, -1, -2); };
  mx::array p = probabilities(q, k);
  mx::array d_p = mx::matmul(d_out, transposed(v));
  mx::array row = mx::sum(d_out * outputs[0], -1, true);
  mx::array d_scores = p * (d_p - row) * kScale;
  return {
      mx::matmul(d_scores, k),
      mx::matmul(transposed(d_scores), q),
      mx::matmul(transposed(p), d_out)};
}

Arrays plain(const Arrays& qkv) {
  return {mx::matmul(probabilities(qkv[0], qkv[1]), qkv[2])};
}

int main() try {
  auto attention = mlxx::custom_vjp("attention", forward, gradient);
  mx::Shape shape = {1, 2, 12, kDim};
  Arrays qkv;
  for (uint64_t seed : {1, 2, 3}) {
    qkv.push_back(mx::random::normal(shape, mx::random::key(seed)));
  }
  mx::array weight = mx::random::normal(shape, mx::random::key(4));
  auto gradients_of = [&](const mlxx::ArrayFunction& function) {
    auto loss = [&](const Arrays& x) {
      return Arrays{mx::sum(function(x)[0] * weight)};
    };
    return mlxx::ValueAndGrad(loss, {0, 1, 2}).apply(qkv).gradients;
  };
  Arrays ours = gradients_of(attention);
  Arrays expected = gradients_of(plain);
  bool right = true;
  for (int i = 0; i < 3; ++i) {
    mx::array close = mx::allclose(ours[i], expected[i], 1e-4, 1e-5);
    bool same = mlxx::item_of<bool>(close, "custom_gradient");
    std::printf("gradient of %c: %s\n", "qkv"[i], same ? "right" : "WRONG");
    right = right && same;
  }
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
