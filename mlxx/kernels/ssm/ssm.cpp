#include "mlxx/kernels/ssm/ssm.h"

#include <limits>

#include "mlxx/base/error.h"
#include "mlxx/kernels/ssm/ssm_cpu.h"
#include "mlxx/kernels/ssm/ssm_device.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

void check(bool fits, const char* name, const mx::array& found) {
  if (!fits) {
    fail(
        ErrorKind::invalid_request,
        "ssm_scan",
        "{} of shape [{}] do not fit",
        name,
        fmt::join(found.shape(), ", "));
  }
}

void check_shapes(const SsmInputs& in) {
  const auto& x = in.x;
  const auto& b = in.b;
  check(x.ndim() == 4 && x.size() > 0, "numbers of x", x);
  check(
      b.ndim() == 4 && b.shape(0) == x.shape(0) && b.shape(1) == x.shape(1) &&
          b.shape(2) > 0 && x.shape(2) % b.shape(2) == 0 && b.shape(3) > 0,
      "numbers of B",
      b);
  check(in.c.shape() == b.shape(), "numbers of C", in.c);
  mx::Shape heads{x.shape(2)};
  check(in.a_log.shape() == heads, "numbers of A", in.a_log);
  check(in.d.shape() == heads, "numbers of D", in.d);
  check(in.dt_bias.shape() == heads, "biases of dt", in.dt_bias);
  mx::Shape tokens{x.shape(0), x.shape(1)};
  check(
      in.dt.shape() == mx::Shape{x.shape(0), x.shape(1), x.shape(2)},
      "steps dt",
      in.dt);
  if (in.state) {
    check(
        in.state->shape() ==
            mx::Shape{x.shape(0), x.shape(2), x.shape(3), b.shape(3)},
        "numbers of the state",
        *in.state);
  }
  if (in.mask) {
    check(
        in.mask->shape() == tokens && in.mask->dtype() == mx::bool_,
        "mask values",
        *in.mask);
  }
  if (in.lengths) {
    check(in.lengths->shape() == mx::Shape{x.shape(0)}, "lengths", *in.lengths);
  }
}

// Sums of x [B, H, L] over j < i <= k as [B, H, k, j]; -inf where a masked
// token takes part.
mx::array segment_sums(
    const mx::array& steps,
    const std::optional<mx::array>& mask) {
  int L = steps.shape(-1);
  mx::array x = steps;
  if (mask) {
    x = mx::multiply(x, mx::expand_dims(*mask, 1));
  }
  x = mx::repeat(mx::expand_dims(x, 3), L, 3);
  mx::array sums = mx::cumsum(mx::tril(x, -1), -2);
  if (mask) {
    mx::array m = mx::expand_dims(*mask, 1);
    mx::array both = mx::multiply(mx::expand_dims(m, 2), mx::expand_dims(m, 3));
    sums = mx::where(
        both,
        sums,
        mx::array(-std::numeric_limits<float>::infinity(), sums.dtype()));
  }
  return sums;
}

// One piece of a prompt, all [B, L, ...]: dtx = dt x, dta = dt A.
struct Piece {
  mx::array dtx;
  mx::array dta;
  mx::array b;
  mx::array c;
  std::optional<mx::array> mask;
};

mx::array from_before(
    const Piece& piece,
    const mx::array& state,
    const mx::array& decays) {
  int B = state.shape(0);
  int H = state.shape(1);
  int Dh = state.shape(2);
  int N = state.shape(3);
  int L = piece.c.shape(1);
  int G = piece.c.shape(2);
  mx::array c = mx::reshape(piece.c, {B, L, G, 1, N, 1});
  mx::array grouped = mx::reshape(state, {B, 1, G, H / G, Dh, N});
  mx::array y = mx::flatten(mx::squeeze(mx::matmul(grouped, c), -1), 2, 3);
  return mx::multiply(mx::expand_dims(decays, 3), y);
}

// {y [B, L, H, Dh], next state}
StatefulResult run_piece(
    const Piece& piece,
    const std::optional<mx::array>& state,
    const std::optional<mx::array>& lengths,
    int piece_tokens,
    mx::Dtype dtype) {
  int repeats = piece.dtx.shape(2) / piece.b.shape(2);
  mx::array b = mx::transpose(piece.b, {0, 2, 3, 1});
  mx::array cb = mx::matmul(mx::swapaxes(piece.c, 1, 2), b);
  cb = mx::repeat(cb, repeats, 1);
  mx::array decay =
      mx::exp(segment_sums(mx::swapaxes(piece.dta, 1, 2), piece.mask));
  mx::array scores = mx::tril(mx::multiply(cb, decay), 0);
  mx::array y =
      mx::swapaxes(mx::matmul(scores, mx::swapaxes(piece.dtx, 1, 2)), 1, 2);
  if (lengths) {
    // The last token that counts.
    mx::array at = mx::subtract(
        mx::minimum(*lengths, mx::array(piece_tokens, lengths->dtype())),
        mx::array(1, lengths->dtype()));
    at = mx::maximum(at, mx::array(0, lengths->dtype()));
    decay = mx::take_along_axis(decay, mx::expand_dims(at, {1, 2, 3}), 2);
  } else {
    int L = decay.shape(2);
    decay = mx::slice(
        decay,
        {0, 0, L - 1, 0},
        {decay.shape(0), decay.shape(1), L, decay.shape(3)});
  }
  decay = mx::transpose(decay, {0, 3, 1, 2});
  b = mx::swapaxes(mx::repeat(b, repeats, 1), 2, 3);
  mx::array weighed =
      mx::swapaxes(mx::swapaxes(mx::multiply(piece.dtx, decay), 1, 2), 2, 3);
  mx::array next = mx::matmul(weighed, b);
  if (state) {
    mx::array decays = mx::exp(mx::cumsum(piece.dta, -2));
    int L = decays.shape(1);
    mx::array last = mx::squeeze(
        mx::slice(decays, {0, L - 1, 0}, {decays.shape(0), L, decays.shape(2)}),
        1);
    next = mx::add(next, mx::multiply(mx::expand_dims(last, {2, 3}), *state));
    y = mx::add(y, from_before(piece, *state, decays));
  }
  if (lengths && state) {
    mx::array over = mx::less(*lengths, mx::array(0, lengths->dtype()));
    next = mx::where(mx::expand_dims(over, {1, 2, 3}), *state, next);
  }
  return {mx::astype(y, dtype), next};
}

Arrays plain_steps(const Arrays& in) {
  mx::array dt = mx::add(mx::astype(in[0], mx::float32), in[1]);
  dt = mx::logaddexp(dt, mx::array(0.0f, dt.dtype()));
  return {mx::clip(dt, in[2], in[3])};
}

mx::array tokens_of(const mx::array& a, int from, int to) {
  mx::Shape start(a.ndim(), 0);
  mx::Shape stop = a.shape();
  start[1] = from;
  stop[1] = to;
  return mx::slice(a, start, stop);
}

}  // namespace

mx::array ssm_steps(
    const mx::array& dt,
    const mx::array& bias,
    float lowest,
    float highest) {
  static const auto compiled = mx::compile(plain_steps, /* shapeless= */ true);
  return compiled({dt, bias, mx::array(lowest), mx::array(highest)})[0];
}

StatefulResult plain_ssm_scan(const SsmInputs& in, int piece_tokens) {
  int L = in.x.shape(1);
  int H = in.x.shape(2);
  mx::array dt = ssm_steps(in.dt, in.dt_bias, in.dt_lowest, in.dt_highest);
  mx::array a = mx::astype(mx::negative(mx::exp(in.a_log)), dt.dtype());
  mx::array dta = mx::multiply(dt, mx::reshape(a, {1, 1, H}));
  if (in.mask) {
    dta = mx::multiply(dta, mx::expand_dims(*in.mask, 2));
  }
  mx::array dtx = mx::multiply(mx::expand_dims(dt, 3), in.x);
  std::optional<mx::array> state = in.state;
  std::optional<mx::array> lengths = in.lengths;
  Arrays ys;
  for (int from = 0; from < L; from += piece_tokens) {
    int to = std::min(from + piece_tokens, L);
    Piece piece{
        tokens_of(dtx, from, to),
        tokens_of(dta, from, to),
        tokens_of(in.b, from, to),
        tokens_of(in.c, from, to),
        std::nullopt};
    if (in.mask) {
      piece.mask = tokens_of(*in.mask, from, to);
    }
    auto result = run_piece(piece, state, lengths, piece_tokens, in.x.dtype());
    ys.push_back(result.out);
    state = result.state;
    if (lengths) {
      lengths =
          mx::subtract(*lengths, mx::array(piece_tokens, lengths->dtype()));
    }
  }
  mx::array skip = mx::multiply(in.x, mx::reshape(in.d, {1, 1, H, 1}));
  return {mx::add(mx::concatenate(ys, 1), skip), *state};
}

StatefulResult ssm_scan(const SsmInputs& inputs, const Selection& selection) {
  check_shapes(inputs);
  if (covers_device_ssm_scan(inputs, selection)) {
    return device_ssm_scan(inputs);
  }
  return covers_ssm_scan(inputs, selection) ? cpu_ssm_scan(inputs, selection)
                                            : plain_ssm_scan(inputs);
}

}  // namespace mlxx::kernels
