#include "mlxx/train/optimizer.h"

#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/train/joined_update.h"

namespace mlxx::train {

namespace {

std::unique_ptr<UpdateRule> make_rule(const OptimizerOptions& options) {
  const auto& name = options.name;
  if (name == "adam" || name == "adamw") {
    return make_adam_rule(options);
  }
  if (name == "sgd") {
    return make_sgd_rule(options);
  }
  if (name == "lion") {
    return make_lion_rule(options);
  }
  if (name == "adafactor") {
    return make_adafactor_rule(options);
  }
  if (name == "muon") {
    return make_muon_rule(options);
  }
  fail(
      ErrorKind::invalid_request,
      "optimizer",
      "\"{}\" is none of adamw, adam, sgd, lion, adafactor, muon",
      name);
}

std::string state_name(const std::string& parameter, const std::string& what) {
  return parameter + "/" + what;
}

constexpr const char* kMaster = "master";

bool are_whole(const std::vector<mx::array>& arrays) {
  size_t bytes = 0;
  for (const auto& array : arrays) {
    if (array.dtype() != mx::float32) {
      return false;
    }
    bytes += array.nbytes();
  }
  return bytes <= JoinedUpdate::kMostBytes && arrays.size() > 1;
}

}  // namespace

Optimizer::Optimizer(
    const OptimizerOptions& options,
    std::vector<std::string> names,
    const std::vector<mx::array>& parameters,
    std::vector<double> ratios)
    : rule_(make_rule(options)),
      names_(std::move(names)),
      ratios_(std::move(ratios)),
      joins_(backend() != Backend::cpu) {
  if (ratios_.empty()) {
    ratios_.assign(parameters.size(), 1);
  }
  if (names_.size() != parameters.size() ||
      ratios_.size() != parameters.size()) {
    fail(
        ErrorKind::invalid_request,
        "optimizer",
        "{} names and {} ratios for {} parameters",
        names_.size(),
        ratios_.size(),
        parameters.size());
  }
  for (const auto& parameter : parameters) {
    const bool whole = parameter.dtype() == mx::float32;
    const mx::array master =
        whole ? parameter : mx::astype(parameter, mx::float32);
    masters_.push_back(whole ? std::nullopt : std::optional(master));
    states_.push_back(rule_->make_state(master));
  }
}

Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;
Optimizer::~Optimizer() = default;

std::map<double, std::vector<size_t>> Optimizer::joined_indices(
    const std::vector<mx::array>& gradients,
    const std::vector<mx::array>& parameters) const {
  std::map<double, std::vector<size_t>> indices;
  if (!joins_ || !rule_->takes_numbers_apart() || !are_whole(gradients) ||
      !are_whole(parameters)) {
    return indices;
  }
  for (size_t i = 0; i < ratios_.size(); ++i) {
    indices[ratios_[i]].push_back(i);
  }
  return indices;
}

std::vector<mx::array> Optimizer::update(
    const std::vector<mx::array>& gradients,
    const std::vector<mx::array>& parameters,
    const mx::array& rate) {
  if (gradients.size() != names_.size() || parameters.size() != names_.size()) {
    fail(
        ErrorKind::internal,
        "optimizer",
        "{} gradients and {} values for {} parameters",
        gradients.size(),
        parameters.size(),
        names_.size());
  }
  ++updates_;
  const auto step_of = [&](double ratio) {
    return UpdateStep{
        ratio == 1 ? rate
                   : mx::multiply(rate, mx::array(static_cast<float>(ratio))),
        static_cast<uint64_t>(updates_)};
  };
  std::vector<mx::array> updated;
  const auto side_by_side = joined_indices(gradients, parameters);
  if (!side_by_side.empty()) {
    updated = parameters;
    for (const auto& [ratio, indices] : side_by_side) {
      std::vector<mx::array> changes;
      std::vector<mx::array> values;
      std::vector<NamedArrays*> states;
      for (size_t i : indices) {
        changes.push_back(gradients[i]);
        values.push_back(parameters[i]);
        states.push_back(&states_[i]);
      }
      const auto parts =
          rows_[ratio].apply(*rule_, changes, values, states, step_of(ratio));
      for (size_t k = 0; k < indices.size(); ++k) {
        updated[indices[k]] = parts[k];
      }
    }
    return updated;
  }
  updated.reserve(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    const UpdateStep step = step_of(ratios_[i]);
    if (!masters_[i]) {
      updated.push_back(
          rule_->apply(gradients[i], parameters[i], states_[i], step));
      continue;
    }
    masters_[i] = rule_->apply(
        mx::astype(gradients[i], mx::float32),
        *masters_[i],
        states_[i],
        step);
    updated.push_back(mx::astype(*masters_[i], parameters[i].dtype()));
  }
  return updated;
}

NamedArrays Optimizer::state() const {
  NamedArrays all;
  for (size_t i = 0; i < names_.size(); ++i) {
    for (const auto& [what, array] : states_[i]) {
      all.emplace_back(state_name(names_[i], what), array);
    }
    if (masters_[i]) {
      all.emplace_back(state_name(names_[i], kMaster), *masters_[i]);
    }
  }
  return all;
}

void Optimizer::set_state(const NamedArrays& state, int64_t updates) {
  std::map<std::string, mx::array> given(state.begin(), state.end());
  const auto take = [&](const std::string& name, const mx::array& like) {
    auto found = given.find(name);
    if (found == given.end()) {
      fail(ErrorKind::bad_file, "optimizer state", "\"{}\" is missing", name);
    }
    if (found->second.shape() != like.shape() ||
        found->second.dtype() != like.dtype()) {
      fail(
          ErrorKind::bad_file,
          "optimizer state",
          "\"{}\" has another shape or dtype than the parameter asks for",
          name);
    }
    mx::array array = found->second;
    given.erase(found);
    return array;
  };
  auto states = states_;
  auto masters = masters_;
  for (size_t i = 0; i < names_.size(); ++i) {
    for (auto& [what, array] : states[i]) {
      array = take(state_name(names_[i], what), array);
    }
    if (masters[i]) {
      masters[i] = take(state_name(names_[i], kMaster), *masters[i]);
    }
  }
  if (!given.empty()) {
    fail(
        ErrorKind::bad_file,
        "optimizer state",
        "\"{}\" belongs to no parameter",
        given.begin()->first);
  }
  states_ = std::move(states);
  masters_ = std::move(masters);
  updates_ = updates;
}

mx::array gradient_norm(const std::vector<mx::array>& gradients) {
  if (backend() != Backend::cpu && are_whole(gradients)) {
    return mx::sqrt(mx::sum(mx::square(joined(gradients))));
  }
  mx::array sum(0.0f);
  for (const auto& gradient : gradients) {
    // Squares of half precision would overflow, and lose the small ones.
    const mx::array wide = gradient.dtype() == mx::float32
        ? gradient
        : mx::astype(gradient, mx::float32);
    sum = mx::add(sum, mx::sum(mx::square(wide)));
  }
  return mx::sqrt(sum);
}

std::vector<mx::array> clip_gradients(
    const std::vector<mx::array>& gradients,
    const mx::array& norm,
    double most) {
  const mx::array factor = mx::minimum(
      mx::divide(
          mx::array(static_cast<float>(most)),
          mx::add(norm, mx::array(1e-6f))),
      mx::array(1.0f));
  std::vector<mx::array> clipped;
  clipped.reserve(gradients.size());
  for (const auto& gradient : gradients) {
    clipped.push_back(
        mx::astype(mx::multiply(gradient, factor), gradient.dtype()));
  }
  return clipped;
}

}  // namespace mlxx::train
