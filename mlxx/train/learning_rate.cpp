#include "mlxx/train/learning_rate.h"

#include <cmath>
#include <numbers>

#include "mlxx/base/error.h"

namespace mlxx::train {

namespace {

constexpr const char* kPlace = "lr schedule";

mx::array scalar(double value) {
  return mx::array(static_cast<float>(value));
}

struct Kind {
  const char* name;
  size_t least;
  size_t most;
};
constexpr Kind kKinds[] = {
    {"constant", 1, 1},
    {"linear_schedule", 3, 3},
    {"cosine_decay", 2, 3},
    {"exponential_decay", 2, 2},
    {"step_decay", 3, 3}};

// The argument that counts updates; -1: none does.
int steps_argument(const std::string& name) {
  if (name == "linear_schedule" || name == "step_decay") {
    return 2;
  }
  return name == "cosine_decay" ? 1 : -1;
}

// min(step, most) as the reference has it: an unsigned number, made float32 by
// what it is multiplied with.
mx::array at_most(const mx::array& step, double most) {
  return mx::minimum(step, mx::array(static_cast<uint64_t>(most)));
}

mx::array linear(const mx::array& step, double init, double end, double steps) {
  return mx::add(
      mx::multiply(at_most(step, steps), scalar((end - init) / steps)),
      scalar(init));
}

mx::array value(
    const std::string& name,
    const std::vector<double>& a,
    const mx::array& step) {
  if (name == "linear_schedule") {
    return linear(step, a[0], a[1], a[2]);
  }
  if (name == "cosine_decay") {
    const double end = a.size() > 2 ? a[2] : 0;
    const mx::array angle =
        mx::multiply(scalar(std::numbers::pi / a[1]), at_most(step, a[1]));
    const mx::array decay =
        mx::multiply(scalar(0.5), mx::add(scalar(1), mx::cos(angle)));
    return mx::add(scalar(end), mx::multiply(decay, scalar(a[0] - end)));
  }
  if (name == "exponential_decay") {
    return mx::multiply(scalar(a[0]), mx::power(scalar(a[1]), step));
  }
  if (name == "step_decay") {
    const mx::array decays =
        mx::floor_divide(step, mx::array(static_cast<uint64_t>(a[2])));
    return mx::multiply(scalar(a[0]), mx::power(scalar(a[1]), decays));
  }
  return scalar(a[0]);
}

}  // namespace

LearningRate::LearningRate(ScheduleOptions options)
    : options_(std::move(options)) {
  const Kind* kind = nullptr;
  std::string known;
  for (const auto& candidate : kKinds) {
    if (options_.name == candidate.name) {
      kind = &candidate;
    }
    known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  }
  if (!kind) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "\"{}\" is none of {}",
        options_.name,
        known);
  }
  const auto& a = options_.arguments;
  if (a.size() < kind->least || a.size() > kind->most) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "{} takes {} arguments, {} are given",
        kind->name,
        kind->most,
        a.size());
  }
  for (double number : a) {
    if (!std::isfinite(number) || number < 0) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "{} takes numbers of at least 0, found {}",
          kind->name,
          number);
    }
  }
  if (const int index = steps_argument(options_.name); index >= 0) {
    if (a[index] < 1 || a[index] != std::floor(a[index]) || a[index] > 1e15) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "the steps of {} are a whole number from 1, found {}",
          kind->name,
          a[index]);
    }
  }
  if (options_.warmup < 0 || !std::isfinite(options_.warmup_init) ||
      options_.warmup_init < 0) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "warm-up of {} updates from {}: neither may be below 0",
        options_.warmup,
        options_.warmup_init);
  }
}

mx::array LearningRate::at(int64_t update) const {
  const auto& a = options_.arguments;
  const auto step = static_cast<uint64_t>(update);
  if (options_.warmup == 0) {
    return value(options_.name, a, mx::array(step));
  }
  const auto boundary = static_cast<uint64_t>(options_.warmup) + 1;
  if (step < boundary) {
    return linear(
        mx::array(step),
        options_.warmup_init,
        a[0],
        static_cast<double>(options_.warmup));
  }
  return value(options_.name, a, mx::array(step - boundary));
}

}  // namespace mlxx::train
