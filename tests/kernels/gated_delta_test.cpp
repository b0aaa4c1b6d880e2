#include "mlxx/kernels/gated_delta/gated_delta.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/core/gradient_check.h"
#include "tests/kernels/recurrent_reference.h"

namespace mlxx::kernels {
namespace {

class GatedDelta : public RecurrentOp {};

struct Sizes {
  int B, T, Hk, Hv, Dk, Dv;
  bool per_key = false;
};

const Sizes kSizes[] = {
    {1, 1, 1, 1, 1, 1},
    {2, 5, 1, 2, 7, 5},
    {1, 9, 2, 4, 16, 33},
    {2, 4, 2, 2, 32, 80, true},
    {1, 3, 1, 2, 128, 128},
};

GatedDeltaInputs make_inputs(const Sizes& s, bool with_state = true) {
  auto gate = [](const mx::Shape& shape, int seed) {
    return mx::sigmoid(mx::add(normal(shape, seed), mx::array(1.0f)));
  };
  auto scaled = [&](int seed) {
    return mx::multiply(
        normal({s.B, s.T, s.Hk, s.Dk}, seed),
        mx::array(1 / std::sqrt(static_cast<float>(s.Dk))));
  };
  mx::Shape decays{s.B, s.T, s.Hv};
  if (s.per_key) {
    decays.push_back(s.Dk);
  }
  GatedDeltaInputs in{
      scaled(1),
      scaled(2),
      normal({s.B, s.T, s.Hv, s.Dv}, 3),
      gate(decays, 4),
      gate({s.B, s.T, s.Hv}, 5),
      std::nullopt,
      std::nullopt};
  if (with_state) {
    in.state = normal({s.B, s.Hv, s.Dv, s.Dk}, 6);
  }
  return in;
}

// In double; masked tokens give 0.
struct Reference {
  std::vector<double> y;
  std::vector<double> state;
};

Reference reference(const GatedDeltaInputs& in) {
  int B = in.values.shape(0), T = in.values.shape(1), Hv = in.values.shape(2);
  int Dv = in.values.shape(3), Hk = in.keys.shape(2), Dk = in.keys.shape(3);
  auto q = numbers(in.queries), k = numbers(in.keys), v = numbers(in.values);
  auto g = numbers(in.decays), beta = numbers(in.betas);
  std::vector<double> mask(B * T, 1.0);
  if (in.mask) {
    mask = numbers(*in.mask);
  }
  Reference r;
  r.state = in.state ? numbers(*in.state)
                     : std::vector<double>(size_t(B) * Hv * Dv * Dk);
  r.y.resize(size_t(B) * T * Hv * Dv);
  bool per_key = in.decays.ndim() == 4;
  for (int b = 0; b < B; ++b) {
    for (int t = 0; t < T; ++t) {
      for (int h = 0; mask[b * T + t] != 0 && h < Hv; ++h) {
        int gate = (b * T + t) * Hv + h;
        int key = ((b * T + t) * Hk + h / (Hv / Hk)) * Dk;
        for (int i = 0; i < Dv; ++i) {
          double* s = &r.state[(size_t(b * Hv + h) * Dv + i) * Dk];
          double recalled = 0;
          for (int j = 0; j < Dk; ++j) {
            s[j] *= per_key ? g[size_t(gate) * Dk + j] : g[gate];
            recalled += s[j] * k[key + j];
          }
          double delta = (v[size_t(gate) * Dv + i] - recalled) * beta[gate];
          double y = 0;
          for (int j = 0; j < Dk; ++j) {
            s[j] += k[key + j] * delta;
            y += s[j] * q[key + j];
          }
          r.y[size_t(gate) * Dv + i] = y;
        }
      }
    }
  }
  return r;
}

TEST_F(GatedDelta, AgreesWithDoublePrecision) {
  for (const auto& sizes : kSizes) {
    for (bool with_state : {false, true}) {
      auto in = make_inputs(sizes, with_state);
      auto expected = reference(in);
      auto selections = every_selection();
      selections.push_back({});  // the plain operations
      for (const auto& selection : selections) {
        auto got = gated_delta(in, selection);
        EXPECT_EQ(got.out.shape(), in.values.shape());
        EXPECT_LT(distance(got.out, expected.y), 2e-6);
        EXPECT_LT(distance(got.state, expected.state), 2e-6);
      }
    }
  }
}

TEST_F(GatedDelta, AgreesWithMlxOwnOp) {
  auto in = make_inputs({2, 6, 2, 4, 32, 16});
  auto theirs = mx::fast::gated_delta_update(
      in.queries,
      in.keys,
      in.values,
      in.decays,
      in.betas,
      in.state);
  auto ours = gated_delta(in, select_best());
  EXPECT_LT(relative_error(ours.out, theirs[0]), 2e-6);
  EXPECT_LT(relative_error(ours.state, theirs[1]), 2e-6);
}

TEST_F(GatedDelta, MaskedTokensLeaveTheStateAlone) {
  for (const auto& sizes : {kSizes[1], kSizes[3]}) {
    auto in = make_inputs(sizes);
    // Padding on the left of one sequence and on the right of the other.
    mx::array at = mx::arange(sizes.T);
    in.mask =
        mx::stack({mx::greater(at, mx::array(1)), mx::less(at, mx::array(2))});
    auto expected = reference(in);
    auto selections = every_selection();
    selections.push_back({});
    for (const auto& selection : selections) {
      auto got = gated_delta(in, selection);
      EXPECT_LT(distance(got.state, expected.state), 2e-6);
      mx::array seen = mx::where(
          mx::expand_dims(*in.mask, {2, 3}),
          got.out,
          mx::array(0.0f));
      EXPECT_LT(distance(seen, expected.y), 2e-6);
    }
  }
}

// One sequence in pieces of any length, alone and on any number of threads,
// against the batch in one call.
TEST_F(GatedDelta, ARowHasTheSameBitsInEveryCompany) {
  for (const auto& sizes : {kSizes[1], kSizes[3]}) {
    auto in = make_inputs(sizes);
    for (InstructionSet set : available_instruction_sets()) {
      Selection many{
          .instruction_set = set,
          .threads = std::make_shared<ThreadPool>(3)};
      Selection one{
          .instruction_set = set,
          .threads = std::make_shared<ThreadPool>(1)};
      auto whole = gated_delta(in, many);
      std::optional<mx::array> state = sequence(*in.state, 1);
      int T = sizes.T;
      for (auto [from, to] : {std::pair{0, 1}, {1, T - 1}, {T - 1, T}}) {
        auto part = [&](const mx::array& a) {
          return tokens(sequence(a, 1), from, to);
        };
        auto got = gated_delta(
            {part(in.queries),
             part(in.keys),
             part(in.values),
             part(in.decays),
             part(in.betas),
             state,
             std::nullopt},
            one);
        EXPECT_TRUE(same_bits(got.out, part(whole.out)));
        state = got.state;
      }
      EXPECT_TRUE(same_bits(*state, sequence(whole.state, 1)));
    }
  }
}

// A state that others hold is copied, one that nobody holds is written over.
TEST_F(GatedDelta, AStateThatIsKeptStays) {
  auto in = make_inputs({1, 2, 1, 2, 16, 64});
  mx::array kept = mx::contiguous(*in.state);
  mx::eval(kept);
  mx::array before = mx::add(kept, mx::array(0.0f));
  mx::eval(before);
  in.state = kept;
  auto first = gated_delta(in, select_best());
  mx::eval(first.out, first.state);
  EXPECT_TRUE(same_bits(kept, before));
  auto second = gated_delta(in, select_best());
  EXPECT_TRUE(same_bits(first.state, second.state));
}

TEST_F(GatedDelta, GradientsAreRight) {
  auto in = make_inputs({1, 3, 1, 2, 5, 4});
  Selection portable = select_best();
  portable.instruction_set = InstructionSet::portable;
  for (const auto& selection : {Selection{}, portable, select_best()}) {
    auto function = [&](const std::vector<mx::array>& x) {
      auto got = gated_delta(
          {x[0], x[1], x[2], x[3], x[4], x[5], std::nullopt},
          selection);
      return std::vector{got.out, got.state};
    };
    EXPECT_TRUE(check_gradient(
        function,
        {in.queries, in.keys, in.values, in.decays, in.betas, *in.state}));
  }
}

TEST_F(GatedDelta, HalfPrecisionRunsThePlainOperations) {
  auto in = make_inputs(kSizes[1]);
  for (auto* a : {&in.queries, &in.keys, &in.values, &in.betas}) {
    *a = mx::astype(*a, mx::bfloat16);
  }
  auto best = gated_delta(in, select_best());
  auto plain = gated_delta(in, {});
  EXPECT_EQ(best.out.dtype(), mx::bfloat16);
  EXPECT_EQ(best.state.dtype(), mx::float32);
  EXPECT_TRUE(same_bits(best.out, plain.out));
}

TEST_F(GatedDelta, DecaysAreThoseOfTheFormula) {
  mx::array a = normal({2, 30, 4}, 1);
  mx::array a_log = normal({4}, 2);
  mx::array bias = normal({4}, 3);
  auto x = numbers(a), rate = numbers(a_log), shift = numbers(bias);
  std::vector<double> expected;
  for (size_t i = 0; i < x.size(); ++i) {
    expected.push_back(
        std::exp(-std::exp(rate[i % 4]) * softplus(x[i] + shift[i % 4])));
  }
  auto selections = every_selection();
  selections.push_back({});
  for (const auto& selection : selections) {
    EXPECT_LT(
        distance(gated_delta_decays(a, a_log, bias, selection), expected),
        1e-6);
    auto function = [&](const std::vector<mx::array>& x) {
      return std::vector{gated_delta_decays(x[0], x[1], x[2], selection)};
    };
    EXPECT_TRUE(check_gradient(function, {a, a_log, bias}));
    EXPECT_THROW(gated_delta_decays(a, a_log, a, selection), Error);
  }
}

TEST_F(GatedDelta, ShapesThatDoNotFitAreRefused) {
  auto good = make_inputs(kSizes[1]);
  auto expect_refused = [&](auto change) {
    auto in = good;
    change(in);
    EXPECT_THROW(gated_delta(in, select_best()), Error);
    EXPECT_THROW(gated_delta(in, {}), Error);
  };
  expect_refused([](auto& in) { in.keys = tokens(in.keys, 0, 2); });
  expect_refused([](auto& in) { in.values = mx::zeros({2, 5, 3, 0}); });
  expect_refused([](auto& in) { in.betas = mx::zeros({2, 5}); });
  expect_refused([](auto& in) { in.decays = mx::zeros({2, 5, 2, 3}); });
  expect_refused([](auto& in) { in.state = mx::zeros({2, 2, 7, 5}); });
  expect_refused([](auto& in) { in.mask = mx::zeros({2, 5}); });
}

}  // namespace
}  // namespace mlxx::kernels
