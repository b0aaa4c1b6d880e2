#include "mlxx/adapters/target_layers.h"

#include <map>
#include <set>

#include "mlxx/base/error.h"
#include "mlxx/nn/row_adapters.h"

namespace mlxx::adapters {
namespace {

using Weights = std::map<std::string, const Parameter*>;

// Which weights linear layers multiply with: what a pass asks adapters about.
class Recorder : public nn::RowAdapters {
 public:
  std::optional<mx::array> product(
      const Parameter& weight,
      const std::optional<Parameter>&,
      const mx::array&,
      const std::function<mx::array(bool)>&) const override {
    asked_.insert(&weight);
    return std::nullopt;
  }
  const std::set<const Parameter*>& asked() const {
    return asked_;
  }

 private:
  mutable std::set<const Parameter*> asked_;
};

std::set<const Parameter*> linear_weights(const models::Model& model) {
  Recorder recorder;
  models::CacheOptions options;
  options.per_layer = true;
  cache::CacheList caches = model.make_cache(options);
  nn::AdapterScope scope(&recorder);
  model.forward(mx::zeros({1, 1}, mx::int32), caches);  // never evaluated
  return recorder.asked();
}

// Names that other programs use for the same module.
std::vector<std::string> names_of(std::string_view module) {
  std::vector<std::string> names = {std::string(module)};
  constexpr std::string_view kWrapped = "language_model.";
  constexpr std::string_view kTransformer = "transformer.";
  if (module.starts_with(kWrapped)) {
    names.emplace_back(module.substr(kWrapped.size()));
  }
  if (module.starts_with(kTransformer)) {
    names.push_back(
        fmt::format("model.{}", module.substr(kTransformer.size())));
  }
  names.push_back(fmt::format("model.{}", module));
  return names;
}

// The parts of a module that models do not keep whole, in their order.
std::vector<std::string> parts_of(std::string_view module) {
  struct Whole {
    std::string_view name;
    std::vector<std::string_view> parts;
  };
  static const std::vector<Whole> kWholes = {
      {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
      {"c_attn", {"q_proj", "k_proj", "v_proj"}},
      {"gate_up_proj", {"gate_proj", "up_proj"}},
  };
  size_t dot = module.rfind('.');
  for (const Whole& whole : kWholes) {
    if (dot != std::string_view::npos && module.substr(dot + 1) == whole.name) {
      std::vector<std::string> parts;
      for (std::string_view part : whole.parts) {
        parts.push_back(fmt::format("{}.{}", module.substr(0, dot), part));
      }
      return parts;
    }
  }
  return {};
}

std::vector<const Parameter*> find_weights(
    const Weights& weights,
    const std::string& module) {
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

void check_shapes(
    const LowRank& change,
    const std::vector<const Parameter*>& weights) {
  int64_t out = 0;
  for (const Parameter* weight : weights) {
    if (weight->shape().size() != 2 ||
        weight->shape()[1] != change.a.shape(0)) {
      fail(
          ErrorKind::bad_file,
          "adapter",
          "'{}' is for {} inputs, the model's layer has {}",
          change.module,
          change.a.shape(0),
          weight->shape().empty() ? 0 : weight->shape().back());
    }
    out += weight->shape()[0];
  }
  if (out != change.b.shape(1)) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "'{}' is for {} outputs, the model's layer has {}",
        change.module,
        change.b.shape(1),
        out);
  }
}

}  // namespace

std::vector<TargetedChange> find_targets(
    const models::Model& model,
    const AdapterFile& file) {
  Weights weights;
  model.visit([&](const std::string& name, const Parameter& parameter) {
    weights[name] = &parameter;
  });
  std::set<const Parameter*> linear = linear_weights(model);
  std::set<const Parameter*> taken;
  std::vector<TargetedChange> targets;
  for (const LowRank& change : file.modules) {
    std::vector<const Parameter*> parts = find_weights(weights, change.module);
    check_shapes(change, parts);
    int first = 0;
    for (const Parameter* weight : parts) {
      if (!linear.contains(weight)) {
        fail(
            ErrorKind::unsupported,
            "adapter",
            "'{}' is no linear layer that adapters can change",
            change.module);
      }
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
      targets.push_back({weight, std::move(part)});
    }
  }
  return targets;
}

}  // namespace mlxx::adapters
