// Mixers that carry a state: pieces of a prompt, padded batches, and our
// kernels against the plain operations.
#include <gtest/gtest.h>

#include "mlxx/cache/recurrent.h"
#include "mlxx/nn/gated_delta_net.h"
#include "mlxx/nn/mamba2_mixer.h"
#include "mlxx/nn/short_conv_mixer.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::nn {
namespace {

constexpr int kHidden = 32;
constexpr int kTokens = 11;

GatedDeltaSpec delta_spec(bool packed) {
  return {
      .hidden_size = kHidden,
      .key_heads = 2,
      .value_heads = 4,
      .key_size = 8,
      .value_size = 12,
      .conv_width = 4,
      .norm_eps = 1e-6f,
      .packed = packed};
}

Mamba2Spec mamba_spec(ScanNorm norm) {
  return {
      .hidden_size = kHidden,
      .heads = 4,
      .head_size = 6,
      .groups = 2,
      .state_size = 10,
      .conv_width = 3,
      .conv_bias = true,
      .in_bias = true,
      .out_bias = true,
      .dt_lowest = 0.01f,
      .dt_highest = 5.0f,
      .norm = norm,
      .norm_eps = 1e-5f};
}

using Make = std::function<std::unique_ptr<TokenMixer>()>;

struct Named {
  const char* name;
  Make make;
};

void PrintTo(const Named& named, std::ostream* out) {
  *out << named.name;
}

std::vector<Named> all_mixers() {
  auto delta = [](bool packed) {
    return [=] { return std::make_unique<GatedDeltaNet>(delta_spec(packed)); };
  };
  auto mamba = [](ScanNorm norm) {
    return [=] { return std::make_unique<Mamba2Mixer>(mamba_spec(norm)); };
  };
  return {
      {"delta", delta(false)},
      {"packed_delta", delta(true)},
      {"scan", mamba(ScanNorm::none)},
      {"scan_norm_after_gate", mamba(ScanNorm::after_gate)},
      {"scan_norm_before_gate", mamba(ScanNorm::before_gate)},
      {"scan_norm_of_groups", mamba(ScanNorm::groups)},
      {"short_conv",
       [] { return std::make_unique<ShortConvMixer>(kHidden, 3, true); }},
  };
}

class RecurrentMixer : public testing::TestWithParam<Named> {
 protected:
  RecurrentMixer() : plain_(GetParam().make()), fast_(GetParam().make()) {
    mx::set_compile_mode(mx::CompileMode::no_fuse);
    fill(*plain_);
    fill(*fast_);
    fast_->use(kernels::select_best());
  }

  // The same numbers each time.
  static void fill(TokenMixer& mixer) {
    uint64_t seed = 1;
    mixer.visit("m", [&](const std::string&, Parameter& parameter) {
      mx::array value =
          mx::multiply(normal(parameter.shape(), seed++), mx::array(0.4f));
      mx::eval(value);
      parameter.set({value, std::nullopt, std::nullopt}, std::nullopt);
    });
  }

  static mx::array run(
      const TokenMixer& mixer,
      const mx::array& x,
      const std::vector<int>& lengths,
      std::vector<int> padding = {}) {
    cache::RecurrentCache cache(mixer.state().slots, std::move(padding));
    std::vector<mx::array> parts;
    int at = 0;
    for (int n : lengths) {
      mx::array piece =
          mx::slice(x, {0, at, 0}, {x.shape(0), at + n, x.shape(2)});
      parts.push_back(mixer(piece, {}, cache));
      at += n;
    }
    EXPECT_EQ(cache.offset(), at);
    return mx::concatenate(parts, 1);
  }

  std::unique_ptr<TokenMixer> plain_;
  std::unique_ptr<TokenMixer> fast_;
};

TEST_P(RecurrentMixer, KernelsGiveWhatThePlainOperationsGive) {
  mx::array x = normal({2, kTokens, kHidden}, 90);
  mx::array expected = run(*plain_, x, {kTokens});
  EXPECT_GT(mx::var(expected).item<float>(), 1e-4f);
  EXPECT_LT(relative_error(run(*fast_, x, {kTokens}), expected), 1e-5);
}

TEST_P(RecurrentMixer, PiecesGiveWhatTheWholeGives) {
  mx::array x = normal({2, kTokens, kHidden}, 91);
  for (auto* mixer : {plain_.get(), fast_.get()}) {
    mx::array whole = run(*mixer, x, {kTokens});
    for (const std::vector<int>& lengths :
         std::vector<std::vector<int>>{{1, 9, 1}, {5, 6}, {2, 2, 2, 2, 3}}) {
      EXPECT_LT(relative_error(run(*mixer, x, lengths), whole), 1e-5);
    }
  }
}

// What stands in the padding must not matter either.
TEST_P(RecurrentMixer, PaddedRowsGiveWhatTheyGiveAlone) {
  mx::array x = normal({2, kTokens, kHidden}, 92);
  constexpr int kPadding = 4;
  for (auto* mixer : {plain_.get(), fast_.get()}) {
    mx::array batch = run(*mixer, x, {3, 6, 1, 1}, {0, kPadding});
    mx::array row = mx::slice(x, {1, kPadding, 0}, {2, kTokens, kHidden});
    mx::array alone = run(*mixer, row, {kTokens - kPadding});
    mx::array in_batch =
        mx::slice(batch, {1, kPadding, 0}, {2, kTokens, kHidden});
    EXPECT_LT(relative_error(in_batch, alone), 1e-5);
    mx::array first = mx::slice(x, {0, 0, 0}, {1, kTokens, kHidden});
    EXPECT_LT(
        relative_error(
            mx::slice(batch, {0, 0, 0}, {1, kTokens, kHidden}),
            run(*mixer, first, {kTokens})),
        1e-5);
  }
}

TEST_P(RecurrentMixer, GradientsOfKernelsAreThoseOfThePlainOperations) {
  mx::array x = normal({1, 5, kHidden}, 93);
  auto gradient = [&](const TokenMixer& mixer) {
    return mx::grad([&](const mx::array& input) {
      return mx::sum(mx::sin(run(mixer, input, {2, 3})));
    })(x);
  };
  EXPECT_LT(relative_error(gradient(*fast_), gradient(*plain_)), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    RecurrentMixer,
    testing::ValuesIn(all_mixers()),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace mlxx::nn
