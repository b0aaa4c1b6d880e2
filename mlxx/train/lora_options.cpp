#include "mlxx/train/lora_options.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"

namespace mlxx::train {
namespace {

constexpr int kHighestRank = 4096;
constexpr int kUsualLayers = 16;
constexpr double kUsualScale = 20;

[[noreturn]] void refuse(const char* option, const std::string& what) {
  fail(ErrorKind::invalid_request, option, "{}", what);
}

void check(const LoraOptions& options) {
  if (options.rank < 1 || options.rank > kHighestRank) {
    refuse(
        "lora rank",
        fmt::format("must be 1 to {}, it is {}", kHighestRank, options.rank));
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    refuse(
        "lora dropout",
        fmt::format(
            "must be at least 0 and below 1, it is {}",
            options.dropout));
  }
  if (options.scale && options.alpha) {
    refuse("lora alpha", "is another way to say the scale, which is given too");
  }
  if (options.rank_stabilized && !options.alpha) {
    refuse(
        "lora alpha",
        "is what rank-stabilized LoRA divides, and is missing");
  }
  double factor = options.alpha.value_or(options.scale.value_or(kUsualScale));
  if (!std::isfinite(factor) || factor == 0) {
    refuse(
        options.alpha ? "lora alpha" : "lora scale",
        fmt::format("must be a number other than 0, it is {}", factor));
  }
  if (!(options.learning_rate_ratio > 0) ||
      !std::isfinite(options.learning_rate_ratio)) {
    refuse(
        "LoRA+ ratio",
        fmt::format("must be above 0, it is {}", options.learning_rate_ratio));
  }
}

double median_of(const std::map<std::string, double>& numbers) {
  std::vector<double> sorted;
  for (const auto& [name, value] : numbers) {
    if (!(value >= 0) || !std::isfinite(value)) {
      refuse(
          "lora sensitivities",
          fmt::format("'{}' has {}, not a number from 0 up", name, value));
    }
    sorted.push_back(value);
  }
  if (sorted.empty()) {
    refuse("lora sensitivities", "are missing, which ranks by KL need");
  }
  std::ranges::sort(sorted);
  size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half]
                                : (sorted[half - 1] + sorted[half]) / 2;
}

int bits_of(const Parameter& weight) {
  return weight.quantization() ? weight.quantization()->bits : 16;
}

int rank_of(
    const adapters::AdaptableModule& module,
    const LoraOptions& options,
    double median) {
  switch (options.ranks) {
    case RankPolicy::by_bits: {
      int wanted = (options.rank * bits_of(*module.weights.front()) + 3) / 4;
      return std::max(2, wanted);
    }
    case RankPolicy::by_kl: {
      auto found = options.sensitivities.find(module.name);
      if (found == options.sensitivities.end()) {
        refuse(
            "lora sensitivities",
            fmt::format("have no number for '{}'", module.name));
      }
      double ratio = median > 0 ? found->second / median : 1;
      double rank = options.rank * std::clamp(ratio, 0.5, 2.0);
      return std::max(1, static_cast<int>(std::lround(rank)));
    }
    default:
      return options.rank;
  }
}

LoraModule planned(
    const adapters::AdaptableModule& module,
    const LoraOptions& options,
    double median) {
  using adapters::LayerKind;
  if (options.dora && module.kind == LayerKind::experts) {
    fail(
        ErrorKind::unsupported,
        "dora",
        "'{}' are experts, which DoRA is not made for; name other keys",
        module.name);
  }
  int rank = rank_of(module, options, median);
  int width =
      module.kind == LayerKind::embedding ? module.outputs : module.inputs;
  if (rank > width) {
    refuse(
        "lora rank",
        fmt::format(
            "is {}, above the {} inputs of '{}'",
            rank,
            width,
            module.name));
  }
  double scale = options.scale.value_or(kUsualScale);
  if (options.alpha) {
    scale = *options.alpha / (options.rank_stabilized ? std::sqrt(rank) : rank);
  }
  return {module, rank, static_cast<float>(scale)};
}

}  // namespace

LoraPlan plan_lora(const models::Model& model, const LoraOptions& options) {
  check(options);
  int layers = model.summary().layers;
  LoraPlan plan;
  plan.num_layers = options.num_layers.value_or(std::min(kUsualLayers, layers));
  if (plan.num_layers > layers) {
    refuse(
        "number of layers",
        fmt::format("is {}, the model has {}", plan.num_layers, layers));
  }
  int first = plan.num_layers < 1 ? 0 : layers - plan.num_layers;
  std::set<std::string> wanted(options.keys.begin(), options.keys.end());
  std::set<std::string> used;
  auto modules = adapters::adaptable_modules(model);
  // Of modules, in the order in which mlx-lm makes them: of each layer, then of
  // the whole model, backwards (mlx.nn.Module.apply_to_modules).
  std::vector<size_t> made;
  auto take = [&](size_t i) {
    if (std::ranges::find(made, i) == made.end()) {
      made.push_back(i);
    }
  };
  for (int layer = first; layer < layers; ++layer) {
    for (size_t i = modules.size(); i-- > 0;) {
      if (modules[i].layer == layer &&
          (wanted.empty() || wanted.contains(modules[i].key))) {
        take(i);
      }
    }
  }
  for (size_t i = modules.size(); i-- > 0;) {
    if (wanted.contains(modules[i].name)) {
      take(i);
    }
  }
  for (const auto& module : modules) {
    used.insert({module.key, module.name});
  }
  for (const std::string& key : wanted) {
    if (!used.contains(key)) {
      refuse(
          "lora keys",
          fmt::format("'{}' is no layer of the model that can adapt", key));
    }
  }
  double median =
      options.ranks == RankPolicy::by_kl ? median_of(options.sensitivities) : 0;
  std::vector<size_t> order = made;
  std::ranges::sort(order);
  for (size_t i : order) {
    plan.modules.push_back(planned(modules[i], options, median));
    bool within = modules[i].layer >= first && modules[i].layer < layers;
    const std::string& key =
        within && (wanted.empty() || wanted.contains(modules[i].key))
        ? modules[i].key
        : modules[i].name;
    if (std::ranges::find(plan.keys, key) == plan.keys.end()) {
      plan.keys.push_back(key);
    }
  }
  for (size_t i : made) {
    plan.made.push_back(static_cast<size_t>(
        std::ranges::lower_bound(order, i) - order.begin()));
  }
  if (plan.modules.empty()) {
    refuse("lora keys", "leave no layer to train");
  }
  return plan;
}

std::map<std::string, double> read_sensitivities(const std::string& path) {
  Json json = parse_json(read_file(path, size_t{64} << 20), path);
  std::map<std::string, double> numbers;
  if (!json.is_object()) {
    fail(ErrorKind::bad_file, path, "is no object of numbers");
  }
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number()) {
      fail(ErrorKind::bad_file, path, "'{}' is no number", name);
    }
    numbers[name] = value.get<double>();
  }
  return numbers;
}

}  // namespace mlxx::train
