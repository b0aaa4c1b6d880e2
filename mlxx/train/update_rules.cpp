#include <cmath>

#include "mlxx/base/error.h"
#include "mlxx/train/optimizer.h"

namespace mlxx::train {

namespace {

// A Python number beside an array takes the array's dtype.
mx::array number(double value, mx::Dtype dtype) {
  return mx::array(static_cast<float>(value), dtype);
}

// a * x + (1 - a) * y
mx::array blend(double a, const mx::array& x, const mx::array& y) {
  return mx::add(
      mx::multiply(number(a, x.dtype()), x),
      mx::multiply(number(1 - a, y.dtype()), y));
}

// Kingma and Ba (arXiv 1412.6980); with decay, Loshchilov and Hutter
// (arXiv 1711.05101).
class AdamRule : public UpdateRule {
 public:
  explicit AdamRule(const OptimizerOptions& options)
      : betas_(options.betas.value_or(std::array<double, 2>{0.9, 0.999})),
        eps_(options.eps.value_or(1e-8)),
        bias_correction_(options.bias_correction),
        decays_(options.name == "adamw"),
        weight_decay_(options.weight_decay.value_or(0.01)) {}

  bool takes_numbers_apart() const override {
    return true;
  }

  NamedArrays make_state(const mx::array& parameter) const override {
    return {{"m", mx::zeros_like(parameter)}, {"v", mx::zeros_like(parameter)}};
  }

  mx::array apply(
      const mx::array& gradient,
      const mx::array& parameter,
      NamedArrays& state,
      const UpdateStep& step) const override {
    const auto dtype = gradient.dtype();
    const mx::array rate = mx::astype(step.rate, dtype);
    mx::array start = parameter;
    if (decays_) {
      start = mx::multiply(
          parameter,
          mx::subtract(
              number(1, dtype),
              mx::multiply(rate, number(weight_decay_, dtype))));
    }
    mx::array& m = state[0].second;
    mx::array& v = state[1].second;
    m = blend(betas_[0], m, gradient);
    v = blend(betas_[1], v, mx::square(gradient));
    if (!bias_correction_) {
      return mx::subtract(
          start,
          mx::divide(
              mx::multiply(rate, m),
              mx::add(mx::sqrt(v), number(eps_, dtype))));
    }
    const mx::array count(step.step);
    const auto rest = [&](double beta) {
      return mx::subtract(
          mx::array(1.0f),
          mx::power(mx::array(static_cast<float>(beta)), count));
    };
    const mx::array c1 = mx::astype(mx::divide(rate, rest(betas_[0])), dtype);
    const mx::array c2 = mx::astype(mx::rsqrt(rest(betas_[1])), dtype);
    return mx::subtract(
        start,
        mx::divide(
            mx::multiply(c1, m),
            mx::add(mx::multiply(mx::sqrt(v), c2), number(eps_, dtype))));
  }

 private:
  std::array<double, 2> betas_;
  double eps_;
  bool bias_correction_;
  bool decays_;
  double weight_decay_;
};

class SgdRule : public UpdateRule {
 public:
  explicit SgdRule(const OptimizerOptions& options)
      : momentum_(options.momentum.value_or(0)),
        dampening_(options.dampening),
        nesterov_(options.nesterov.value_or(false)),
        weight_decay_(options.weight_decay.value_or(0)) {
    if (nesterov_ && (momentum_ <= 0 || dampening_ != 0)) {
      fail(
          ErrorKind::invalid_request,
          "optimizer",
          "nesterov of sgd needs a momentum and no dampening, found {} and {}",
          momentum_,
          dampening_);
    }
  }

  bool takes_numbers_apart() const override {
    return true;
  }

  NamedArrays make_state(const mx::array& parameter) const override {
    if (momentum_ <= 0) {
      return {};
    }
    return {{"v", mx::zeros_like(parameter)}};
  }

  mx::array apply(
      const mx::array& given,
      const mx::array& parameter,
      NamedArrays& state,
      const UpdateStep& step) const override {
    const auto dtype = given.dtype();
    const mx::array rate = mx::astype(step.rate, dtype);
    mx::array gradient = given;
    if (weight_decay_ != 0) {
      gradient = mx::add(
          gradient,
          mx::multiply(number(weight_decay_, dtype), parameter));
    }
    if (momentum_ <= 0) {
      return mx::subtract(parameter, mx::multiply(rate, gradient));
    }
    mx::array& v = state[0].second;
    v = mx::multiply(number(momentum_, dtype), v);
    v = mx::add(
        v,
        dampening_ > 0 ? mx::multiply(number(1 - dampening_, dtype), gradient)
                       : gradient);
    const mx::array update = nesterov_
        ? mx::add(gradient, mx::multiply(number(momentum_, dtype), v))
        : v;
    return mx::subtract(parameter, mx::multiply(rate, update));
  }

 private:
  double momentum_;
  double dampening_;
  bool nesterov_;
  double weight_decay_;
};

// Chen et al. (arXiv 2302.06675).
class LionRule : public UpdateRule {
 public:
  explicit LionRule(const OptimizerOptions& options)
      : betas_(options.betas.value_or(std::array<double, 2>{0.9, 0.99})),
        weight_decay_(options.weight_decay.value_or(0)) {}

  bool takes_numbers_apart() const override {
    return true;
  }

  NamedArrays make_state(const mx::array& parameter) const override {
    return {{"m", mx::zeros_like(parameter)}};
  }

  mx::array apply(
      const mx::array& gradient,
      const mx::array& parameter,
      NamedArrays& state,
      const UpdateStep& step) const override {
    const auto dtype = gradient.dtype();
    const mx::array rate = mx::astype(step.rate, dtype);
    mx::array& m = state[0].second;
    const mx::array direction = mx::sign(blend(betas_[0], m, gradient));
    m = blend(betas_[1], m, gradient);
    mx::array start = parameter;
    if (weight_decay_ > 0) {
      start = mx::multiply(
          mx::subtract(
              number(1, dtype),
              mx::multiply(rate, number(weight_decay_, dtype))),
          parameter);
    }
    return mx::subtract(start, mx::multiply(rate, direction));
  }

 private:
  std::array<double, 2> betas_;
  double weight_decay_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adam_rule(const OptimizerOptions& options) {
  return std::make_unique<AdamRule>(options);
}

std::unique_ptr<UpdateRule> make_sgd_rule(const OptimizerOptions& options) {
  return std::make_unique<SgdRule>(options);
}

std::unique_ptr<UpdateRule> make_lion_rule(const OptimizerOptions& options) {
  return std::make_unique<LionRule>(options);
}

}  // namespace mlxx::train
