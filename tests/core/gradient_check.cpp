#include "tests/core/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "mlxx/base/error.h"
#include "mlxx/core/autograd.h"
#include "mlxx/core/dtype.h"

namespace mlxx {
namespace {

using Arrays = std::vector<mx::array>;
using Doubles = std::vector<double>;

// Steps kFirstStep, half of it, and so on, in units of the argument's size.
constexpr double kFirstStep = 1.0 / 16;
constexpr int kSteps = 7;

Doubles to_host(const mx::array& x) {
  mx::array dense = mx::contiguous(x);
  mx::eval(dense);
  if (x.dtype() == mx::float64) {
    return {dense.data<double>(), dense.data<double>() + dense.size()};
  }
  return {dense.data<float>(), dense.data<float>() + dense.size()};
}

mx::array to_array(const Doubles& numbers, const mx::array& like) {
  return mx::array(numbers.begin(), like.shape(), like.dtype());
}

double dot(const Doubles& a, const Doubles& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double norm(const Doubles& a) {
  return std::sqrt(dot(a, a));
}

bool is_checkable(const mx::array& x) {
  return x.dtype() == mx::float32 || x.dtype() == mx::float64;
}

double rounding_unit(const mx::array& x) {
  return x.dtype() == mx::float64 ? 1.1e-16 : 6e-8;
}

// Independent standard normal numbers, the same on every machine.
class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed) : key_(mx::random::key(seed)) {}

  Doubles normal(const mx::array& like) {
    auto [next, use] = mx::random::split(key_);
    key_ = next;
    return to_host(mx::random::normal(like.shape(), mx::float32, use));
  }

 private:
  mx::array key_;
};

// The derivative at h = 0 of a function of h, and how sure that is.
struct Derivative {
  double value;
  double error;
};

Derivative extrapolate(const std::function<double(double)>& difference) {
  Doubles extrapolated;
  double step = kFirstStep;
  double wide = difference(step);
  for (int i = 0; i < kSteps; ++i) {
    step /= 2;
    double narrow = difference(step);
    extrapolated.push_back((4 * narrow - wide) / 3);
    wide = narrow;
  }
  Derivative best{0, std::numeric_limits<double>::infinity()};
  // Two neighbours must agree, since one may do so by chance.
  for (int i = 1; i + 1 < kSteps; ++i) {
    double error = std::max(
        std::abs(extrapolated[i] - extrapolated[i - 1]),
        std::abs(extrapolated[i] - extrapolated[i + 1]));
    if (error < best.error) {
      best = {extrapolated[i], error};
    }
  }
  return best;
}

// What one direction of one argument gives.
struct Measured {
  double declared;     // <gradient, d>
  Derivative numeric;  // of <w, function(x + h d)>
  double typical;      // |gradient| |d| / sqrt(count)
  double rounding;     // what rounding alone makes of a derivative of 0
};

class Check {
 public:
  Check(
      const ArrayFunction& function,
      const Arrays& arguments,
      const GradientCheckOptions& options)
      : function_(function), arguments_(arguments), random_(options.seed) {}

  Measured measure(size_t index) {
    require_checkable("argument", arguments_.at(index));
    Arrays outputs = function_(arguments_);
    std::vector<Doubles> weights;
    Arrays cotangents;
    double size = 0;
    double unit = rounding_unit(arguments_[index]);
    for (const auto& output : outputs) {
      require_checkable("output", output);
      weights.push_back(random_.normal(output));
      cotangents.push_back(to_array(weights.back(), output));
      Doubles terms = to_host(output);
      std::ranges::transform(
          terms,
          weights.back(),
          terms.begin(),
          std::multiplies());
      size = std::hypot(size, norm(terms));
      unit = std::max(unit, rounding_unit(output));
    }

    Doubles x = to_host(arguments_[index]);
    Doubles direction = random_.normal(arguments_[index]);
    double root = std::sqrt(static_cast<double>(x.size()));
    double scale = norm(x) > 0 ? norm(x) / root : 1;
    for (double& d : direction) {
      d *= scale;
    }

    Doubles gradient = to_host(declared_gradient(index, cotangents));
    auto value = [&](double step) {
      Arrays moved = arguments_;
      Doubles y = x;
      for (size_t i = 0; i < y.size(); ++i) {
        y[i] += step * direction[i];
      }
      moved[index] = to_array(y, arguments_[index]);
      Arrays results = function_(moved);
      double total = 0;
      for (size_t i = 0; i < results.size(); ++i) {
        total += dot(weights[i], to_host(results[i]));
      }
      return total;
    };
    auto difference = [&](double step) {
      return (value(step) - value(-step)) / (2 * step);
    };
    return {
        dot(gradient, direction),
        extrapolate(difference),
        norm(gradient) * norm(direction) / root,
        // Of some operations in a row, over the widest step.
        8 * unit * size / kFirstStep};
  }

 private:
  static void require_checkable(std::string_view what, const mx::array& x) {
    if (!is_checkable(x)) {
      fail(
          ErrorKind::invalid_request,
          "check_gradient",
          "{} of {}, not float32 or float64",
          what,
          dtype_name(x.dtype()));
    }
  }

  mx::array declared_gradient(size_t index, const Arrays& cotangents) {
    auto of_one = [&](const Arrays& traced) {
      Arrays all = arguments_;
      all[index] = traced[0];
      return function_(all);
    };
    Vjp vjp(of_one, static_cast<int>(cotangents.size()));
    return vjp.apply({arguments_[index]}, cotangents).cotangents[0];
  }

  const ArrayFunction& function_;
  const Arrays& arguments_;
  RandomNumbers random_;
};

std::string judge(const Measured& measured, double tolerance) {
  const auto& [declared, numeric, typical, rounding] = measured;
  double allowed = tolerance * typical + rounding;
  double gap = std::abs(declared - numeric.value);
  // Written so that a NaN fails.
  if (!(numeric.error <= allowed)) {
    return fmt::format(
        "inconclusive: finite differences give {:.6g}, known to {:.2g} only "
        "where {:.2g} is allowed; the gradient gives {:.6g}",
        numeric.value,
        numeric.error,
        allowed,
        declared);
  }
  if (!(gap <= allowed)) {
    return fmt::format(
        "the gradient gives {:.6g} where finite differences give {:.6g}: "
        "{:.2g} apart, {:.2g} allowed",
        declared,
        numeric.value,
        gap,
        allowed);
  }
  return "";
}

}  // namespace

testing::AssertionResult check_gradient(
    const ArrayFunction& function,
    const std::vector<mx::array>& arguments,
    const GradientCheckOptions& options) {
  std::vector<int> indices = options.arguments;
  if (indices.empty()) {
    indices.resize(arguments.size());
    std::iota(indices.begin(), indices.end(), 0);
  }
  if (indices.empty() || options.directions < 1) {
    return testing::AssertionFailure() << "there is nothing to check";
  }
  Check check(function, arguments, options);
  for (int index : indices) {
    for (int i = 0; i < options.directions; ++i) {
      std::string wrong;
      try {
        wrong = judge(check.measure(index), options.tolerance);
      } catch (const std::exception& error) {
        wrong = error.what();
      }
      if (!wrong.empty()) {
        return testing::AssertionFailure()
            << "argument " << index << ", direction " << i << ": " << wrong;
      }
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace mlxx
