#include "mlxx/kernels/ssm/ssm.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/recurrent_reference.h"

namespace mlxx::kernels {
namespace {

class SsmScan : public RecurrentOp {};

struct Sizes {
  int B, L, H, G, Dh, N;
};

const Sizes kSizes[] = {
    {1, 1, 1, 1, 1, 1},
    {2, 6, 4, 2, 5, 7},
    {1, 9, 2, 1, 33, 16},
    {1, 3, 2, 2, 64, 128},
    {1, 300, 2, 1, 8, 4},
};

SsmInputs make_inputs(const Sizes& s, bool with_state = true) {
  SsmInputs in{
      normal({s.B, s.L, s.H, s.Dh}, 1),
      mx::multiply(normal({s.H}, 2), mx::array(0.5f)),
      normal({s.B, s.L, s.G, s.N}, 3),
      normal({s.B, s.L, s.G, s.N}, 4),
      normal({s.H}, 5),
      normal({s.B, s.L, s.H}, 6),
      mx::subtract(normal({s.H}, 7), mx::array(2.0f)),
      0.01f,
      2.0f,
      std::nullopt,
      std::nullopt,
      std::nullopt};
  if (with_state) {
    in.state = normal({s.B, s.H, s.Dh, s.N}, 8);
  }
  return in;
}

struct Reference {
  std::vector<double> y;
  std::vector<double> state;
};

Reference reference(const SsmInputs& in) {
  int B = in.x.shape(0), L = in.x.shape(1), H = in.x.shape(2);
  int Dh = in.x.shape(3), G = in.b.shape(2), N = in.b.shape(3);
  auto x = numbers(in.x), b = numbers(in.b), c = numbers(in.c);
  auto d = numbers(in.d), a_log = numbers(in.a_log), dt = numbers(in.dt);
  auto bias = numbers(in.dt_bias);
  std::vector<double> mask(size_t(B) * L, 1.0);
  if (in.mask) {
    mask = numbers(*in.mask);
  }
  Reference r;
  r.state = in.state ? numbers(*in.state)
                     : std::vector<double>(size_t(B) * H * Dh * N);
  r.y.resize(x.size());
  for (int row = 0; row < B * L; ++row) {
    for (int h = 0; mask[row] != 0 && h < H; ++h) {
      double step = softplus(dt[size_t(row) * H + h] + bias[h]);
      step =
          std::min<double>(std::max<double>(step, in.dt_lowest), in.dt_highest);
      double keep = std::exp(-std::exp(a_log[h]) * step);
      size_t group = (size_t(row) * G + h / (H / G)) * N;
      for (int i = 0; i < Dh; ++i) {
        size_t at = (size_t(row) * H + h) * Dh + i;
        double* s = &r.state[((size_t(row / L) * H + h) * Dh + i) * N];
        double y = d[h] * x[at];
        for (int n = 0; n < N; ++n) {
          s[n] = keep * s[n] + step * x[at] * b[group + n];
          y += s[n] * c[group + n];
        }
        r.y[at] = y;
      }
    }
  }
  return r;
}

TEST_F(SsmScan, AgreesWithDoublePrecision) {
  for (const auto& sizes : kSizes) {
    for (bool with_state : {false, true}) {
      auto in = make_inputs(sizes, with_state);
      auto expected = reference(in);
      for (const auto& selection : every_selection()) {
        auto got = ssm_scan(in, selection);
        EXPECT_EQ(got.out.shape(), in.x.shape());
        EXPECT_LT(distance(got.out, expected.y), 3e-6);
        EXPECT_LT(distance(got.state, expected.state), 3e-6);
      }
      // The chunked form loses more, and the pieces must meet.
      for (int piece : {256, 4}) {
        auto plain = plain_ssm_scan(in, piece);
        EXPECT_LT(distance(plain.out, expected.y), 2e-5) << piece;
        EXPECT_LT(distance(plain.state, expected.state), 2e-5) << piece;
      }
    }
  }
}

// Padding on the left of one sequence, and on the right of the other.
TEST_F(SsmScan, MaskedTokensLeaveTheStateAlone) {
  auto in = make_inputs(kSizes[1]);
  mx::array at = mx::arange(6);
  auto check = [&](const SsmInputs& given) {
    auto expected = reference(given);
    auto selections = every_selection();
    selections.push_back({});
    for (const auto& selection : selections) {
      auto got = ssm_scan(given, selection);
      EXPECT_LT(distance(got.state, expected.state), 2e-5);
      mx::array seen = mx::where(
          mx::expand_dims(*given.mask, {2, 3}),
          got.out,
          mx::array(0.0f));
      EXPECT_LT(distance(seen, expected.y), 2e-5);
    }
  };
  in.mask = mx::stack(
      {mx::greater(at, mx::array(1)), mx::greater(at, mx::array(-1))});
  check(in);
  int32_t lengths[] = {2, 6};
  in.lengths = mx::array(lengths, {2}, mx::int32);
  in.mask = mx::stack({mx::less(at, mx::array(2)), mx::less(at, mx::array(6))});
  check(in);
}

TEST_F(SsmScan, ARowHasTheSameBitsInEveryCompany) {
  auto in = make_inputs(kSizes[1]);
  for (InstructionSet set : available_instruction_sets()) {
    Selection many{
        .instruction_set = set,
        .threads = std::make_shared<ThreadPool>(3)};
    Selection one{
        .instruction_set = set,
        .threads = std::make_shared<ThreadPool>(1)};
    auto whole = ssm_scan(in, many);
    auto piece = in;
    piece.state = sequence(*in.state, 1);
    for (auto [from, to] : {std::pair{0, 1}, {1, 5}, {5, 6}}) {
      auto part = [&](const mx::array& a) {
        return tokens(sequence(a, 1), from, to);
      };
      piece.x = part(in.x);
      piece.b = part(in.b);
      piece.c = part(in.c);
      piece.dt = part(in.dt);
      auto got = ssm_scan(piece, one);
      EXPECT_TRUE(same_bits(got.out, part(whole.out)));
      piece.state = got.state;
    }
    EXPECT_TRUE(same_bits(*piece.state, sequence(whole.state, 1)));
  }
}

TEST_F(SsmScan, GradientsAreRight) {
  auto in = make_inputs({1, 3, 2, 1, 4, 3});
  for (const auto& selection : {Selection{}, select_best()}) {
    auto function = [&](const std::vector<mx::array>& x) {
      SsmInputs given{
          x[0],
          x[1],
          x[2],
          x[3],
          x[4],
          x[5],
          x[6],
          0.0f,
          1e9f,
          x[7],
          {},
          {}};
      auto got = ssm_scan(given, selection);
      return std::vector{got.out, got.state};
    };
    EXPECT_TRUE(check_gradient(
        function,
        {in.x, in.a_log, in.b, in.c, in.d, in.dt, in.dt_bias, *in.state}));
  }
}

TEST_F(SsmScan, ShapesThatDoNotFitAreRefused) {
  auto good = make_inputs(kSizes[1]);
  auto expect_refused = [&](auto change) {
    auto in = good;
    change(in);
    EXPECT_THROW(ssm_scan(in, select_best()), Error);
    EXPECT_THROW(ssm_scan(in, {}), Error);
  };
  expect_refused([](auto& in) { in.x = mx::zeros({2, 0, 4, 5}); });
  expect_refused([](auto& in) { in.b = mx::zeros({2, 6, 3, 7}); });
  expect_refused([](auto& in) { in.c = mx::zeros({2, 6, 2, 8}); });
  expect_refused([](auto& in) { in.d = mx::zeros({3}); });
  expect_refused([](auto& in) { in.dt = mx::zeros({2, 6}); });
  expect_refused([](auto& in) { in.state = mx::zeros({2, 4, 7, 5}); });
  expect_refused([](auto& in) { in.mask = mx::zeros({2, 6}); });
  expect_refused([](auto& in) { in.lengths = mx::zeros({3}, mx::int32); });
}

}  // namespace
}  // namespace mlxx::kernels
