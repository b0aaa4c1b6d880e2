#include "mlxx/adapters/target_layers.h"

#include <map>
#include <set>

#include "mlxx/adapters/module_names.h"
#include "mlxx/base/error.h"

namespace mlxx::adapters {
namespace {

using Weights = std::map<std::string, const Parameter*>;
using Layers = std::map<const Parameter*, LayerKind>;
// mlx-lm's modules, by their names with and without what wraps them.
using Modules = std::map<std::string, AdaptableModule>;

constexpr std::string_view kWrapped = "language_model.";

Modules named_modules(const models::Model& model) {
  Modules modules;
  for (AdaptableModule& module : adaptable_modules(model)) {
    if (module.name.starts_with(kWrapped)) {
      modules.emplace(module.name.substr(kWrapped.size()), module);
    }
    modules.emplace(module.name, std::move(module));
  }
  return modules;
}

std::vector<const Parameter*> find_weights(
    const Weights& weights,
    const Modules& modules,
    const std::string& module) {
  for (const std::string& name : names_of(module)) {
    if (auto found = modules.find(name); found != modules.end()) {
      return found->second.weights;
    }
  }
  auto of = [&](const std::string& name) {
    auto found = weights.find(name + ".weight");
    return found == weights.end() ? nullptr : found->second;
  };
  for (const std::string& name : names_of(module)) {
    if (const Parameter* weight = of(name)) {
      return {weight};
    }
    std::vector<const Parameter*> parts;
    for (const std::string& part : parts_of(name)) {
      if (const Parameter* weight = of(part)) {
        parts.push_back(weight);
      }
    }
    if (!parts.empty() && parts.size() == parts_of(name).size()) {
      return parts;
    }
  }
  fail(ErrorKind::bad_file, "adapter", "the model has no layer '{}'", module);
}

[[noreturn]] void wrong_size(
    const LowRank& change,
    int64_t has,
    const char* what,
    int64_t wanted) {
  fail(
      ErrorKind::bad_file,
      "adapter",
      "'{}' is for {} {}, the model's layer has {}",
      change.module,
      has,
      what,
      wanted);
}

void check_kind(const LowRank& change, LayerKind kind) {
  bool stacked = change.a.ndim() == 3;
  if (stacked != (kind == LayerKind::experts)) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "'{}' has matrices of {} dimensions, the model's layer is {}",
        change.module,
        change.a.ndim(),
        stacked ? "one matrix" : "a stack of experts");
  }
}

void check_magnitude(const LowRank& change, int64_t wanted) {
  if (change.magnitude && change.magnitude->shape(0) != wanted) {
    wrong_size(change, change.magnitude->shape(0), "magnitudes", wanted);
  }
}

void check_embedding(const LowRank& change, const mx::Shape& shape) {
  if (change.a.shape(0) != shape[0]) {
    wrong_size(change, change.a.shape(0), "tokens", shape[0]);
  }
  if (change.b.shape(1) != shape[1]) {
    wrong_size(change, change.b.shape(1), "outputs", shape[1]);
  }
  check_magnitude(change, shape[0]);
}

void check_experts(const LowRank& change, const mx::Shape& shape) {
  if (change.a.shape(0) != shape[0]) {
    wrong_size(change, change.a.shape(0), "experts", shape[0]);
  }
  if (change.a.shape(2) != shape[2]) {
    wrong_size(change, change.a.shape(2), "inputs", shape[2]);
  }
  if (change.b.shape(1) != shape[1]) {
    wrong_size(change, change.b.shape(1), "outputs", shape[1]);
  }
}

void check_linear(
    const LowRank& change,
    const std::vector<const Parameter*>& weights) {
  int64_t out = 0;
  for (const Parameter* weight : weights) {
    const mx::Shape& shape = weight->shape();
    if (shape.size() != 2 || shape[1] != change.a.shape(0)) {
      wrong_size(
          change,
          change.a.shape(0),
          "inputs",
          shape.empty() ? 0 : shape.back());
    }
    out += shape[0];
  }
  if (out != change.b.shape(1)) {
    wrong_size(change, change.b.shape(1), "outputs", out);
  }
  check_magnitude(change, out);
}

}  // namespace

std::vector<TargetedChange> find_targets(
    const models::Model& model,
    const AdapterFile& file) {
  Weights weights;
  model.visit([&](const std::string& name, const Parameter& parameter) {
    weights[name] = &parameter;
  });
  Layers layers = adaptable_layers(model);
  Modules modules = named_modules(model);
  std::set<const Parameter*> taken;
  std::vector<TargetedChange> targets;
  for (const LowRank& change : file.modules) {
    std::vector<const Parameter*> parts =
        find_weights(weights, modules, change.module);
    auto kind = layers.find(parts.front());
    if (kind == layers.end()) {
      fail(
          ErrorKind::unsupported,
          "adapter",
          "'{}' is no layer that adapters can change",
          change.module);
    }
    check_kind(change, kind->second);
    if (kind->second == LayerKind::embedding) {
      check_embedding(change, parts.front()->shape());
    } else if (kind->second == LayerKind::experts) {
      check_experts(change, parts.front()->shape());
    } else {
      check_linear(change, parts);
    }
    int first = 0;
    for (const Parameter* weight : parts) {
      if (!taken.insert(weight).second) {
        fail(
            ErrorKind::bad_file,
            "adapter",
            "'{}' is a layer that it changes already",
            change.module);
      }
      LowRank part = change;
      int end = first + weight->shape()[0];
      if (parts.size() > 1) {
        part.b = mx::slice(change.b, {0, first}, {change.b.shape(0), end});
        if (change.magnitude) {
          part.magnitude = mx::slice(*change.magnitude, {first}, {end});
        }
      }
      first = end;
      targets.push_back({weight, kind->second, std::move(part)});
    }
  }
  return targets;
}

}  // namespace mlxx::adapters
