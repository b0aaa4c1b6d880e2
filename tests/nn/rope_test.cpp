#include "mlxx/nn/rope.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "tests/kernels/relative_error.h"

namespace mlxx::nn {
namespace {

constexpr int kDims = 16;

// Rotates the halves of x by position / period[i], in float64.
std::vector<double> rotated(
    const std::vector<double>& x,
    const std::vector<double>& periods,
    double position,
    double input_scale) {
  std::vector<double> y = x;
  size_t half = periods.size();
  for (size_t i = 0; i < half; ++i) {
    double angle = position / periods[i];
    double a = x[i] * input_scale;
    double b = x[half + i] * input_scale;
    y[i] = a * std::cos(angle) - b * std::sin(angle);
    y[half + i] = a * std::sin(angle) + b * std::cos(angle);
  }
  return y;
}

std::vector<double> plain_periods(double base) {
  std::vector<double> periods;
  for (int i = 0; i < kDims; i += 2) {
    periods.push_back(std::pow(base, static_cast<double>(i) / kDims));
  }
  return periods;
}

std::shared_ptr<const Rope> rope_of(
    const std::string& scaling,
    int trained = 64) {
  RopeOptions options{
      .dims = kDims,
      .base = 10000,
      .max_position_embeddings = trained};
  if (scaling.empty()) {
    return make_rope(options, std::nullopt);
  }
  Json json = parse_json(scaling, "config.json");
  return make_rope(options, JsonView(json, "config.json"));
}

void expect_rotation(
    const Rope& rope,
    const std::vector<double>& periods,
    double position_scale = 1,
    double input_scale = 1) {
  for (int offset : {0, 5, 90}) {
    std::vector<float> data;
    std::vector<double> x;
    for (int i = 0; i < kDims; ++i) {
      x.push_back(std::sin(i + 1.0));
      data.push_back(static_cast<float>(x.back()));
    }
    mx::array y =
        rope(mx::array(data.data(), {1, 1, 1, kDims}, mx::float32), offset);
    y = mx::contiguous(y);
    mx::eval(y);
    auto expected = rotated(x, periods, offset * position_scale, input_scale);
    for (int i = 0; i < kDims; ++i) {
      EXPECT_NEAR(y.data<float>()[i], expected[i], 2e-5)
          << rope.name() << " at " << offset << ", element " << i;
    }
  }
}

TEST(Rope, Plain) {
  expect_rotation(*rope_of(""), plain_periods(10000));
  expect_rotation(*rope_of(R"({"rope_type":"default"})"), plain_periods(10000));
}

TEST(Rope, LinearDividesPositions) {
  expect_rotation(
      *rope_of(R"({"type":"linear","factor":4.0})"),
      plain_periods(10000),
      0.25);
}

TEST(Rope, Llama3StretchesLongWavesAndBlendsTheMiddle) {
  auto periods = plain_periods(10000);
  double factor = 8, low = 1, high = 4, trained = 32;
  for (double& period : periods) {
    double wave = 2 * std::numbers::pi * period;
    if (wave > trained / low) {
      period *= factor;
    } else if (wave > trained / high) {
      double smooth = (trained / wave - low) / (high - low);
      period /= (1 - smooth) / factor + smooth;
    }
  }
  expect_rotation(
      *rope_of(
          R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
              "high_freq_factor":4.0,"original_max_position_embeddings":32})"),
      periods);
}

TEST(Rope, YarnBlendsByRotationsAndScalesItsInput) {
  double factor = 4, trained = 64;
  auto correction = [&](double rotations) {
    return kDims * std::log(trained / (rotations * 2 * std::numbers::pi)) /
        (2 * std::log(10000.0));
  };
  double low = std::max(std::floor(correction(32)), 0.0);
  double high = std::min(std::ceil(correction(1)), kDims - 1.0);
  auto periods = plain_periods(10000);
  for (size_t i = 0; i < periods.size(); ++i) {
    double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    double keep = 1 - ramp;
    periods[i] = 1 / (keep / periods[i] + (1 - keep) / (factor * periods[i]));
  }
  expect_rotation(
      *rope_of(
          R"({"rope_type":"yarn","factor":4.0,
              "original_max_position_embeddings":64})"),
      periods,
      1,
      0.1 * std::log(factor) + 1);
}

TEST(Rope, LongropeUsesTheLongFactors) {
  auto periods = plain_periods(10000);
  for (size_t i = 0; i < periods.size(); ++i) {
    periods[i] *= 1 + static_cast<double>(i);
  }
  expect_rotation(
      *rope_of(
          R"({"rope_type":"longrope","short_factor":[1,1,1,1,1,1,1,1],
              "long_factor":[1,2,3,4,5,6,7,8],
              "original_max_position_embeddings":16})"),
      periods,
      1,
      std::sqrt(1 + std::log(4.0) / std::log(16.0)));
}

TEST(Rope, DynamicGrowsTheBasePastTheTrainedLength) {
  auto rope = rope_of(R"({"rope_type":"dynamic","factor":2.0})", 64);
  // Position 90 is a length of 91: 2 * 91 / 64 - 1 to the 16/14.
  double base = 10000 * std::pow(2.0 * 91 / 64 - 1, 16.0 / 14);
  std::vector<float> data(kDims, 1.0f);
  mx::array x(data.data(), {1, 1, 1, kDims}, mx::float32);
  EXPECT_LT(
      relative_error(
          (*rope)(x, 90),
          mx::fast::rope(x, kDims, false, static_cast<float>(base), 1.0f, 90)),
      1e-6);
  EXPECT_TRUE(same_bits((*rope)(x, 10), (*rope_of(""))(x, 10)));
}

TEST(Rope, ProportionalLeavesTheTailAlone) {
  auto periods = plain_periods(10000);
  for (size_t i = 2; i < periods.size(); ++i) {
    periods[i] = std::numeric_limits<double>::infinity();
  }
  expect_rotation(
      *rope_of(R"({"rope_type":"proportional","partial_rotary_factor":0.25})"),
      periods);
}

TEST(Rope, SplitCallsContinueEachOther) {
  auto rope = rope_of(R"({"type":"linear","factor":2.0})");
  mx::array x = normal({1, 2, 6, kDims}, 1);
  auto parts = mx::split(x, mx::Shape{4}, 2);
  EXPECT_TRUE(same_bits(
      (*rope)(x, 3),
      mx::concatenate({(*rope)(parts[0], 3), (*rope)(parts[1], 7)}, 2)));
}

TEST(Rope, RefusesNonsenseByName) {
  for (auto [scaling, word] : {
           std::pair{R"({"type":"spiral"})", "'spiral'"},
           {R"({"type":"linear"})", "'factor'"},
           {R"({"type":"linear","factor":0})", "'factor'"},
           {R"({"type":"linear","factor":"4"})", "'factor'"},
           {R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,
                "high_freq_factor":4})",
            "'high_freq_factor'"},
           {R"({"rope_type":"longrope","long_factor":[1,2],
                "original_max_position_embeddings":16})",
            "'long_factor'"},
           {R"({"rope_type":"proportional","partial_rotary_factor":2})",
            "'partial_rotary_factor'"},
       }) {
    try {
      rope_of(scaling);
      ADD_FAILURE() << scaling;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace mlxx::nn
