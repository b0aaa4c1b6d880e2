#include "mlxx/nn/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::nn {
namespace {

mx::array scalar(double value) {
  return mx::array(static_cast<float>(value), mx::float32);
}

// base ^ (2i / dims) for i in [0, dims / 2), in float32.
mx::array plain_wavelengths(double base, int dims, int rotated) {
  mx::array exponents = mx::divide(
      mx::arange(0.0, static_cast<double>(rotated), 2.0, mx::float32),
      scalar(dims));
  return mx::power(scalar(base), exponents);
}

class PlainRope : public Rope {
 public:
  PlainRope(const RopeOptions& options, double scale, const char* name)
      : options_(options), scale_(static_cast<float>(scale)), name_(name) {}

  mx::array operator()(
      const mx::array& x,
      const kernels::Position& first,
      const kernels::Selection& selection) const override {
    return kernels::rope(
        x,
        {.dims = options_.dims,
         .traditional = options_.traditional,
         .base = static_cast<float>(options_.base),
         .wavelengths = std::nullopt,
         .position_scale = scale_},
        first,
        selection);
  }
  std::optional<Rotations> rotations() const override {
    Rotations rotations{{}, 1, options_.traditional};
    int half = options_.dims / 2;
    double base = static_cast<float>(options_.base);
    for (int i = 0; i < half; ++i) {
      rotations.per_position.push_back(
          double{scale_} / std::pow(base, static_cast<double>(i) / half));
    }
    return rotations;
  }
  const char* name() const override {
    return name_;
  }

 private:
  RopeOptions options_;
  float scale_;
  const char* name_;
};

// Position divided by a wavelength per pair, after the input is multiplied.
class WavelengthRope : public Rope {
 public:
  WavelengthRope(
      const RopeOptions& options,
      mx::array wavelengths,
      double input_scale,
      const char* name)
      : options_(options),
        wavelengths_(std::move(wavelengths)),
        input_scale_(input_scale),
        name_(name) {
    mx::eval(wavelengths_);
  }

  mx::array operator()(
      const mx::array& x,
      const kernels::Position& first,
      const kernels::Selection& selection) const override {
    return kernels::rope(
        input_scale_ == 1.0 ? x : scaled(x),
        {.dims = options_.dims,
         .traditional = options_.traditional,
         .base = std::nullopt,
         .wavelengths = wavelengths_},
        first,
        selection);
  }
  std::optional<Rotations> rotations() const override {
    Rotations rotations{{}, input_scale_, options_.traditional};
    for (size_t i = 0; i < wavelengths_.size(); ++i) {
      rotations.per_position.push_back(
          1.0 / double{wavelengths_.data<float>()[i]});
    }
    return rotations;
  }
  const char* name() const override {
    return name_;
  }

 private:
  mx::array scaled(const mx::array& x) const {
    mx::array factor(static_cast<float>(input_scale_), x.dtype());
    if (x.shape(-1) == options_.dims) {
      return mx::multiply(x, factor);
    }
    auto parts = mx::split(x, mx::Shape{options_.dims}, -1);
    return mx::concatenate({mx::multiply(parts[0], factor), parts[1]}, -1);
  }

  RopeOptions options_;
  mx::array wavelengths_;  // [dims / 2] float32
  double input_scale_;
  const char* name_;
};

// NTK scaling: the base grows with the length once it exceeds the trained one.
class DynamicRope : public Rope {
 public:
  DynamicRope(const RopeOptions& options, double factor)
      : options_(options), factor_(factor) {}

  mx::array operator()(
      const mx::array& x,
      const kernels::Position& first,
      const kernels::Selection& selection) const override {
    if (first.array) {
      fail(
          ErrorKind::unsupported,
          "rope",
          "dynamic scaling needs the position as a number");
    }
    double trained = options_.max_position_embeddings;
    double length = std::max<double>(x.shape(-2) + first.number, trained);
    double dims = options_.dims;
    double base = options_.base *
        std::pow(factor_ * length / trained - (factor_ - 1), dims / (dims - 2));
    return kernels::rope(
        x,
        {.dims = options_.dims,
         .traditional = options_.traditional,
         .base = static_cast<float>(base),
         .wavelengths = std::nullopt},
        first,
        selection);
  }
  const char* name() const override {
    return "dynamic";
  }

 private:
  RopeOptions options_;
  double factor_;
};

double positive(const JsonView& scaling, const char* key) {
  double value = scaling.number(key);
  if (value <= 0) {
    scaling.fail_at(key, "must be above 0");
  }
  return value;
}

double positive_or(const JsonView& scaling, const char* key, double fallback) {
  return scaling.has(key) ? positive(scaling, key) : fallback;
}

std::shared_ptr<const Rope> make_llama3(
    const RopeOptions& options,
    const JsonView& scaling) {
  double factor = positive(scaling, "factor");
  double low = positive_or(scaling, "low_freq_factor", 1.0);
  double high = positive_or(scaling, "high_freq_factor", 4.0);
  double trained =
      positive_or(scaling, "original_max_position_embeddings", 8192);
  if (high == low) {
    scaling.fail_at("high_freq_factor", "must differ from low_freq_factor");
  }
  mx::array longest = scalar(trained / low);
  mx::array shortest = scalar(trained / high);

  mx::array periods =
      plain_wavelengths(options.base, options.dims, options.dims);
  mx::array waves = mx::multiply(scalar(2 * std::numbers::pi), periods);
  periods = mx::where(
      mx::greater(waves, longest),
      mx::multiply(periods, scalar(factor)),
      periods);
  mx::array is_medium =
      mx::logical_and(mx::greater(waves, shortest), mx::less(waves, longest));
  mx::array smooth = mx::divide(
      mx::subtract(mx::divide(scalar(trained), waves), scalar(low)),
      scalar(high - low));
  mx::array blend = mx::add(
      mx::divide(mx::subtract(scalar(1), smooth), scalar(factor)),
      smooth);
  periods = mx::where(is_medium, mx::divide(periods, blend), periods);
  return std::make_shared<WavelengthRope>(options, periods, 1.0, "llama3");
}

std::shared_ptr<const Rope> make_yarn(
    const RopeOptions& options,
    const JsonView& scaling) {
  double factor = positive(scaling, "factor");
  double trained =
      positive_or(scaling, "original_max_position_embeddings", 4096);
  double beta_fast = positive_or(scaling, "beta_fast", 32);
  double beta_slow = positive_or(scaling, "beta_slow", 1);
  auto mscale_of = [&](double mscale) {
    return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
  };
  double input_scale = mscale_of(scaling.number_or("mscale", 1)) /
      mscale_of(scaling.number_or("mscale_all_dim", 0));
  double dims = options.dims;
  auto correction = [&](double rotations) {
    return dims * std::log(trained / (rotations * 2 * std::numbers::pi)) /
        (2 * std::log(options.base));
  };
  double low = std::max(std::floor(correction(beta_fast)), 0.0);
  double high = std::min(std::ceil(correction(beta_slow)), dims - 1);
  if (low == high) {
    high += 0.001;
  }

  mx::array extra = plain_wavelengths(options.base, options.dims, options.dims);
  mx::array inter = mx::multiply(scalar(factor), extra);
  mx::array ramp = mx::clip(
      mx::divide(
          mx::subtract(
              mx::arange(0.0, std::floor(dims / 2), 1.0, mx::float32),
              scalar(low)),
          scalar(high - low)),
      scalar(0),
      scalar(1));
  mx::array mask = mx::subtract(scalar(1), ramp);
  mx::array periods = mx::divide(
      mx::multiply(inter, extra),
      mx::add(
          mx::multiply(inter, mask),
          mx::multiply(extra, mx::subtract(scalar(1), mask))));
  return std::make_shared<WavelengthRope>(
      options,
      periods,
      input_scale,
      "yarn");
}

std::shared_ptr<const Rope> make_longrope(
    RopeOptions options,
    const JsonView& scaling) {
  auto factors = scaling.numbers_or_empty("long_factor");
  if (factors.size() != static_cast<size_t>(options.dims / 2)) {
    scaling.fail_at(
        "long_factor",
        fmt::format(
            "must have {} numbers, found {}",
            options.dims / 2,
            factors.size()));
  }
  double trained = positive(scaling, "original_max_position_embeddings");
  double growth =
      (options.max_position_embeddings > 0 ? options.max_position_embeddings
                                           : 131072) /
      trained;
  double input_scale =
      growth <= 1 ? 1.0 : std::sqrt(1 + std::log(growth) / std::log(trained));
  std::vector<float> values(factors.begin(), factors.end());
  mx::array periods = mx::multiply(
      mx::array(values.data(), {static_cast<int>(values.size())}, mx::float32),
      plain_wavelengths(options.base, options.dims, options.dims));
  options.traditional = false;
  return std::make_shared<WavelengthRope>(
      options,
      periods,
      input_scale,
      "longrope");
}

std::shared_ptr<const Rope> make_proportional(
    const RopeOptions& options,
    const JsonView& scaling) {
  double fraction = positive_or(scaling, "partial_rotary_factor", 1.0);
  if (fraction > 1) {
    scaling.fail_at("partial_rotary_factor", "must be at most 1");
  }
  int rotated = static_cast<int>(options.dims * fraction);
  double factor = positive_or(scaling, "factor", 1.0);
  mx::array periods = mx::concatenate(
      {mx::multiply(
           scalar(factor),
           plain_wavelengths(options.base, options.dims, rotated)),
       mx::full(
           {(options.dims - rotated) / 2},
           std::numeric_limits<float>::infinity(),
           mx::float32)},
      0);
  return std::make_shared<WavelengthRope>(
      options,
      periods,
      1.0,
      "proportional");
}

}  // namespace

std::shared_ptr<const Rope> make_rope(
    const RopeOptions& options,
    const std::optional<JsonView>& scaling) {
  if (options.dims < 2 || options.dims % 2 != 0 || !(options.base > 0)) {
    fail(
        ErrorKind::bad_file,
        "rope",
        "needs an even head size and a positive base, found {} and {}",
        options.dims,
        options.base);
  }
  std::string type = "default";
  if (scaling) {
    type = scaling->has("type") ? scaling->string("type")
                                : scaling->string_or("rope_type", "default");
  }
  if (type == "default") {
    return std::make_shared<PlainRope>(options, 1.0, "plain");
  }
  if (type == "mrope") {
    // Sections turn by time, height and width, which are the same for text.
    return std::make_shared<PlainRope>(options, 1.0, "mrope");
  }
  if (type == "linear") {
    return std::make_shared<PlainRope>(
        options,
        1 / positive(*scaling, "factor"),
        "linear");
  }
  if (type == "dynamic") {
    if (options.max_position_embeddings < 1 || options.dims < 4) {
      scaling->fail_at("rope_type", "'dynamic' needs max_position_embeddings");
    }
    return std::make_shared<DynamicRope>(options, positive(*scaling, "factor"));
  }
  if (type == "llama3") {
    return make_llama3(options, *scaling);
  }
  if (type == "yarn" || type == "deepseek_yarn" || type == "telechat3-yarn") {
    return make_yarn(options, *scaling);
  }
  if (type == "longrope") {
    return make_longrope(options, *scaling);
  }
  if (type == "proportional") {
    return make_proportional(options, *scaling);
  }
  fail(
      ErrorKind::unsupported,
      scaling->place(),
      "rope type '{}' is not known: default, linear, dynamic, llama3, yarn, "
      "longrope, proportional, mrope are",
      type);
}

}  // namespace mlxx::nn
