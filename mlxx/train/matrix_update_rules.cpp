#include <algorithm>
#include <cmath>

#include "mlxx/train/optimizer.h"

// Methods that look at a matrix as a whole.
namespace mlxx::train {

namespace {

mx::array number(double value, mx::Dtype dtype) {
  return mx::array(static_cast<float>(value), dtype);
}

mx::array root_mean_square(const mx::array& x) {
  return mx::sqrt(mx::mean(mx::square(x)));
}

// Shazeer and Stern (arXiv 1804.04235): second moments of rows and columns.
class AdafactorRule : public UpdateRule {
 public:
  explicit AdafactorRule(const OptimizerOptions& options)
      : options_(options), weight_decay_(options.weight_decay.value_or(0)) {}

  NamedArrays make_state(const mx::array& parameter) const override {
    NamedArrays state;
    const auto dtype = parameter.dtype();
    if (parameter.ndim() >= 2) {
      const mx::Shape& shape = parameter.shape();
      mx::Shape row(shape.begin(), shape.end() - 1);
      mx::Shape column(shape.begin(), shape.end() - 2);
      column.push_back(shape.back());
      state.emplace_back("exp_avg_sq_row", mx::zeros(row, dtype));
      state.emplace_back("exp_avg_sq_col", mx::zeros(column, dtype));
    } else {
      state.emplace_back("exp_avg_sq", mx::zeros_like(parameter));
    }
    if (options_.beta_1) {
      state.emplace_back("exp_avg", mx::zeros_like(parameter));
    }
    return state;
  }

  mx::array apply(
      const mx::array& gradient,
      const mx::array& given,
      NamedArrays& state,
      const UpdateStep& step) const override {
    const auto dtype = given.dtype();
    const mx::array rms = root_mean_square(given);
    const mx::array rate = this->rate(step, rms);
    const mx::array count(step.step);
    const mx::array beta = mx::subtract(
        number(1, dtype),
        mx::astype(
            mx::power(
                count,
                mx::array(static_cast<float>(options_.decay_rate))),
            dtype));
    const mx::array rest = mx::subtract(number(1, dtype), beta);
    const auto average = [&](mx::array& kept, const mx::array& added) {
      kept = mx::add(mx::multiply(beta, kept), mx::multiply(rest, added));
    };

    mx::array update =
        mx::add(mx::square(gradient), number(options_.factor_eps[0], dtype));
    if (gradient.ndim() >= 2) {
      mx::array& row = state[0].second;
      mx::array& column = state[1].second;
      average(row, mx::mean(update, -1));
      average(column, mx::mean(update, -2));
      const mx::array row_factor =
          mx::rsqrt(mx::divide(row, mx::mean(row, -1, true)));
      update = mx::multiply(
          mx::multiply(
              mx::expand_dims(row_factor, -1),
              mx::expand_dims(mx::rsqrt(column), -2)),
          gradient);
    } else {
      average(state[0].second, update);
      update = mx::multiply(mx::rsqrt(state[0].second), gradient);
    }
    update = mx::divide(
        update,
        mx::maximum(
            number(1, dtype),
            mx::divide(
                root_mean_square(update),
                number(options_.clip_threshold, dtype))));
    update = mx::multiply(rate, update);
    if (options_.beta_1) {
      mx::array& first = state.back().second;
      first = mx::add(
          mx::multiply(number(*options_.beta_1, dtype), first),
          mx::multiply(number(1 - *options_.beta_1, dtype), update));
      update = first;
    }
    mx::array parameter = given;
    if (weight_decay_ != 0) {
      parameter = mx::add(
          parameter,
          mx::multiply(
              parameter,
              mx::multiply(number(-weight_decay_, dtype), rate)));
    }
    return mx::subtract(parameter, update);
  }

 private:
  mx::array rate(const UpdateStep& step, const mx::array& rms) const {
    mx::array rate = step.rate;
    if (options_.relative_step) {
      const mx::array count(step.step);
      const mx::array least = options_.warmup_init
          ? mx::multiply(mx::array(1e-6f), count)
          : mx::array(1e-2f);
      rate = mx::minimum(least, mx::rsqrt(count));
    }
    rate = mx::astype(rate, rms.dtype());
    const mx::array scale = options_.scale_parameter
        ? mx::maximum(number(options_.factor_eps[1], rms.dtype()), rms)
        : number(1, rms.dtype());
    return mx::multiply(scale, rate);
  }

  OptimizerOptions options_;
  double weight_decay_;
};

// The nearest orthogonal matrix, about, by a quintic Newton-Schulz iteration.
mx::array orthogonalized(const mx::array& matrix, int steps) {
  const auto dtype = matrix.dtype();
  constexpr float a = 3.4445;
  constexpr float b = -4.7750;
  constexpr float c = 2.0315;
  const bool tall = matrix.shape(-2) > matrix.shape(-1);
  mx::array x = tall ? mx::transpose(matrix) : matrix;
  x = mx::divide(
      x,
      mx::add(mx::linalg::norm(x, std::nullopt, true), number(1e-7, dtype)));
  for (int i = 0; i < steps; ++i) {
    const mx::array square = mx::matmul(x, mx::transpose(x));
    const mx::array mixed = mx::addmm(
        mx::multiply(number(b, dtype), square),
        square,
        square,
        c,
        1.0f);
    x = mx::addmm(mx::multiply(number(a, dtype), x), mixed, x, 1.0f, 1.0f);
  }
  return tall ? mx::transpose(x) : x;
}

// Jordan et al., "Muon: an optimizer for hidden layers in neural networks".
class MuonRule : public UpdateRule {
 public:
  explicit MuonRule(const OptimizerOptions& options)
      : momentum_(options.momentum.value_or(0.95)),
        nesterov_(options.nesterov.value_or(true)),
        weight_decay_(options.weight_decay.value_or(0.01)),
        steps_(options.ns_steps) {}

  NamedArrays make_state(const mx::array& parameter) const override {
    return {{"v", mx::zeros_like(parameter)}};
  }

  mx::array apply(
      const mx::array& given,
      const mx::array& parameter,
      NamedArrays& state,
      const UpdateStep& step) const override {
    const auto dtype = given.dtype();
    mx::array gradient = given;
    if (weight_decay_ != 0) {
      gradient = mx::add(
          gradient,
          mx::multiply(number(weight_decay_, dtype), parameter));
    }
    mx::array& v = state[0].second;
    v = mx::add(
        mx::multiply(number(momentum_, dtype), v),
        mx::multiply(number(1 - momentum_, dtype), gradient));
    mx::array update = nesterov_
        ? mx::add(
              mx::multiply(gradient, number(1 - momentum_, dtype)),
              mx::multiply(v, number(momentum_, dtype)))
        : v;
    mx::array rate = mx::astype(step.rate, dtype);
    if (update.ndim() >= 2) {
      const mx::Shape shape = update.shape();
      if (update.ndim() > 2) {
        update = mx::reshape(update, {shape[0], -1});
      }
      update = orthogonalized(update, steps_);
      if (shape.size() > 2) {
        update = mx::reshape(update, shape);
      }
      const double aspect = static_cast<double>(shape[shape.size() - 2]) /
          static_cast<double>(shape.back());
      rate =
          mx::multiply(rate, number(std::sqrt(std::max(1.0, aspect)), dtype));
    }
    return mx::subtract(parameter, mx::multiply(rate, update));
  }

 private:
  double momentum_;
  bool nesterov_;
  double weight_decay_;
  int steps_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adafactor_rule(
    const OptimizerOptions& options) {
  return std::make_unique<AdafactorRule>(options);
}

std::unique_ptr<UpdateRule> make_muon_rule(const OptimizerOptions& options) {
  return std::make_unique<MuonRule>(options);
}

}  // namespace mlxx::train
