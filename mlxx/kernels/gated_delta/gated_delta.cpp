#include "mlxx/kernels/gated_delta/gated_delta.h"

#include "mlxx/base/error.h"
#include "mlxx/kernels/gated_delta/gated_delta_cpu.h"
#include "mlxx/kernels/gated_delta/gated_delta_device.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

void check(bool fits, const char* name, const mx::array& found) {
  if (!fits) {
    fail(
        ErrorKind::invalid_request,
        "gated_delta",
        "{} of shape [{}] do not fit",
        name,
        fmt::join(found.shape(), ", "));
  }
}

void check_shapes(const GatedDeltaInputs& in) {
  const auto& q = in.queries;
  const auto& v = in.values;
  check(
      q.ndim() == 4 && q.shape(1) > 0 && q.shape(2) > 0 && q.shape(3) > 0,
      "queries",
      q);
  check(in.keys.shape() == q.shape(), "keys", in.keys);
  check(
      v.ndim() == 4 && v.shape(0) == q.shape(0) && v.shape(1) == q.shape(1) &&
          v.shape(2) > 0 && v.shape(2) % q.shape(2) == 0 && v.shape(3) > 0,
      "values",
      v);
  mx::Shape gates{q.shape(0), q.shape(1), v.shape(2)};
  check(in.betas.shape() == gates, "betas", in.betas);
  mx::Shape per_key = gates;
  per_key.push_back(q.shape(3));
  check(
      in.decays.shape() == gates || in.decays.shape() == per_key,
      "decays",
      in.decays);
  if (in.state) {
    check(
        in.state->shape() ==
            mx::Shape{q.shape(0), v.shape(2), v.shape(3), q.shape(3)},
        "numbers of the state",
        *in.state);
  }
  if (in.mask) {
    check(
        in.mask->shape() == mx::Shape{q.shape(0), q.shape(1)} &&
            in.mask->dtype() == mx::bool_,
        "mask values",
        *in.mask);
  }
}

// One token: {q [B, H, Dk], k, v [B, H, Dv], decay, beta [B, H], state} and
// the mask [B] if there is one.
Arrays step(const Arrays& in) {
  const auto& [q, k, v, decay, beta] =
      std::tie(in[0], in[1], in[2], in[3], in[4]);
  const mx::array& old_state = in[5];
  mx::array keep = decay.ndim() == 2 ? mx::expand_dims(decay, {2, 3})
                                     : mx::expand_dims(decay, 2);
  mx::array state = mx::multiply(old_state, keep);
  mx::array key = mx::expand_dims(k, 2);
  mx::array recalled = mx::sum(mx::multiply(state, key), -1);
  mx::array delta =
      mx::multiply(mx::subtract(v, recalled), mx::expand_dims(beta, 2));
  state = mx::add(state, mx::multiply(key, mx::expand_dims(delta, 3)));
  mx::array y = mx::sum(mx::multiply(state, mx::expand_dims(q, 2)), -1);
  if (in.size() > 6) {
    state = mx::where(mx::expand_dims(in[6], {1, 2, 3}), state, old_state);
  }
  return {mx::astype(y, q.dtype()), state};
}

// Token `t` of [B, T, ...].
mx::array at_token(const mx::array& a, int t) {
  mx::Shape from(a.ndim(), 0);
  mx::Shape to = a.shape();
  from[1] = t;
  to[1] = t + 1;
  return mx::squeeze(mx::slice(a, from, to), 1);
}

}  // namespace

std::vector<mx::array> plain_decays(const std::vector<mx::array>& in) {
  mx::array rate = mx::negative(mx::exp(mx::astype(in[1], mx::float32)));
  mx::array sum = mx::add(in[0], in[2]);
  mx::array softplus = mx::logaddexp(sum, mx::array(0.0f, sum.dtype()));
  return {mx::exp(mx::multiply(rate, softplus))};
}

StatefulResult plain_gated_delta(const GatedDeltaInputs& in) {
  // Compiled as in mlx-lm: on a GPU a fused kernel rounds differently.
  static const auto compiled = mx::compile(step);
  int repeats = in.values.shape(2) / in.queries.shape(2);
  mx::array q = in.queries;
  mx::array k = in.keys;
  if (repeats > 1) {
    q = mx::repeat(q, repeats, 2);
    k = mx::repeat(k, repeats, 2);
  }
  mx::array state = *in.state;
  Arrays ys;
  for (int t = 0; t < q.shape(1); ++t) {
    Arrays arguments = {
        at_token(q, t),
        at_token(k, t),
        at_token(in.values, t),
        at_token(in.decays, t),
        at_token(in.betas, t),
        state};
    if (in.mask) {
      arguments.push_back(at_token(*in.mask, t));
    }
    Arrays results = compiled(arguments);
    ys.push_back(results[0]);
    state = results[1];
  }
  return {mx::stack(ys, 1), state};
}

StatefulResult gated_delta(
    const GatedDeltaInputs& inputs,
    const Selection& selection) {
  check_shapes(inputs);
  GatedDeltaInputs in = inputs;
  if (!in.state) {
    in.state = mx::zeros(
        {in.values.shape(0),
         in.values.shape(2),
         in.values.shape(3),
         in.queries.shape(3)},
        mx::float32);
  }
  if (covers_device_gated_delta(in, selection)) {
    return device_gated_delta(in);
  }
  return covers_gated_delta(in, selection) ? cpu_gated_delta(in, selection)
                                           : plain_gated_delta(in);
}

mx::array gated_delta_decays(
    const mx::array& a,
    const mx::array& a_log,
    const mx::array& bias,
    const Selection& selection) {
  mx::Shape heads{a.ndim() == 3 ? a.shape(2) : 0};
  check(a.ndim() == 3 && a.size() > 0, "projections", a);
  check(a_log.shape() == heads, "rates", a_log);
  check(bias.shape() == heads, "biases", bias);
  if (covers_decays(a, a_log, bias, selection)) {
    return cpu_decays(a, a_log, bias, selection);
  }
  static const auto compiled = mx::compile(plain_decays, /* shapeless= */ true);
  return compiled({a, a_log, bias})[0];
}

}  // namespace mlxx::kernels
