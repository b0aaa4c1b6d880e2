#include "mlxx/adapters/adaptable_modules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>

#include "mlxx/nn/row_adapters.h"

namespace mlxx::adapters {
namespace {

// Changes nothing and remembers who asked.
class Recorder : public nn::RowAdapters {
 public:
  std::optional<mx::array> product(
      const Parameter& weight,
      const std::optional<Parameter>&,
      const mx::array&,
      const std::function<mx::array(bool)>&) const override {
    asked_.emplace(&weight, LayerKind::linear);
    return std::nullopt;
  }
  std::optional<mx::array> rows(
      const Parameter& table,
      const mx::array&,
      const std::function<mx::array()>&) const override {
    asked_.emplace(&table, LayerKind::embedding);
    return std::nullopt;
  }
  std::optional<mx::array> head(
      const Parameter& table,
      const mx::array&,
      const std::function<mx::array()>&) const override {
    asked_.emplace(&table, LayerKind::embedding);
    return std::nullopt;
  }
  std::optional<mx::array> expert_product(
      const Parameter& weight,
      const mx::array&,
      const mx::array&,
      bool,
      const std::function<mx::array()>&) const override {
    asked_.emplace(&weight, LayerKind::experts);
    return std::nullopt;
  }
  bool changes(const Parameter&) const override {
    return true;
  }
  const std::map<const Parameter*, LayerKind>& asked() const {
    return asked_;
  }

 private:
  mutable std::map<const Parameter*, LayerKind> asked_;
};

bool among(std::string_view name, const auto& list) {
  return std::ranges::find(list, name) != list.end();
}

// What differs in mlx-lm's modules from the names of parameters here.
// Dense networks have gate, down, up; in these gate, up, down.
constexpr std::array kUpBeforeDown = std::to_array<std::string_view>(
    {"minicpm",
     "cohere2",
     "glm4_moe",
     "deepseek_v3",
     "llama4_text",
     "lfm2_moe",
     "falcon_h1",
     "nemotron_h"});
// Routers are matrices, not modules.
constexpr std::array kBareRouters = std::to_array<std::string_view>(
    {"glm4_moe", "deepseek_v3", "nemotron_h", "qwen3_5_moe"});
// The router comes behind the experts.
constexpr std::array kRouterLast = std::to_array<std::string_view>(
    {"granitemoe", "granitemoehybrid", "gpt_oss", "llama4"});
// Everything is below that.
constexpr std::array kWrapped =
    std::to_array<std::string_view>({"llama4", "qwen3_5", "qwen3_5_moe"});

// One matrix there, several here, or one of another name.
struct Whole {
  std::string_view model_type;
  std::string_view name;
  std::vector<std::string_view> parts;
};

const std::vector<Whole>& wholes() {
  static const std::vector<Whole> kWholes = {
      {"phi3", "qkv_proj", {"q_proj", "k_proj", "v_proj"}},
      {"phi3", "gate_up_proj", {"gate_proj", "up_proj"}},
      {"glm4", "gate_up_proj", {"gate_proj", "up_proj"}},
      {"gpt2", "c_attn", {"q_proj", "k_proj", "v_proj"}},
      {"granitemoehybrid", "input_linear", {"gate_proj", "up_proj"}},
      {"granitemoehybrid", "output_linear", {"down_proj"}},
  };
  return kWholes;
}

std::pair<std::string, std::string> parent_and_leaf(const std::string& name) {
  size_t dot = name.rfind('.');
  return dot == std::string::npos
      ? std::pair(std::string(), name)
      : std::pair(name.substr(0, dot), name.substr(dot + 1));
}

std::string last_part(const std::string& name) {
  return parent_and_leaf(name).second;
}

// Where the number of the decoder layer begins and ends; nothing without one.
std::optional<std::pair<size_t, size_t>> layer_number(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    size_t end = std::min(name.find('.', begin), name.size());
    bool number = end > begin && end - begin < 7 &&
        std::all_of(
                      name.begin() + static_cast<std::ptrdiff_t>(begin),
                      name.begin() + static_cast<std::ptrdiff_t>(end),
                      [](unsigned char c) { return std::isdigit(c) != 0; });
    if (number) {
      return std::pair(begin, end);
    }
    begin = end + 1;
  }
  return std::nullopt;
}

using Modules = std::vector<AdaptableModule>;

void join_wholes(const std::string& model_type, Modules& modules) {
  for (const Whole& whole : wholes()) {
    if (whole.model_type != model_type) {
      continue;
    }
    for (size_t i = 0; i + whole.parts.size() <= modules.size(); ++i) {
      auto [parent, leaf] = parent_and_leaf(modules[i].name);
      bool all = true;
      for (size_t k = 0; k < whole.parts.size(); ++k) {
        all = all && modules[i + k].kind == LayerKind::linear &&
            parent_and_leaf(modules[i + k].name) ==
                std::pair(parent, std::string(whole.parts[k]));
      }
      if (!all) {
        continue;
      }
      AdaptableModule& joined = modules[i];
      joined.name = fmt::format("{}.{}", parent, whole.name);
      for (size_t k = 1; k < whole.parts.size(); ++k) {
        joined.outputs += modules[i + k].outputs;
        joined.weights.push_back(modules[i + k].weights.front());
      }
      auto first = modules.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      modules.erase(
          first,
          first + static_cast<std::ptrdiff_t>(whole.parts.size()) - 1);
    }
  }
}

void put_down_before_up(Modules& modules) {
  for (size_t i = 0; i + 1 < modules.size(); ++i) {
    auto [parent, leaf] = parent_and_leaf(modules[i].name);
    if (modules[i].kind == LayerKind::linear && leaf == "up_proj" &&
        modules[i + 1].name == parent + ".down_proj") {
      std::swap(modules[i], modules[i + 1]);
    }
  }
}

bool is_router(const AdaptableModule& module) {
  std::string leaf = last_part(module.name);
  return module.kind == LayerKind::linear &&
      (leaf == "gate" || leaf == "router" ||
       module.name.ends_with("router.layer"));
}

void put_routers_behind_experts(Modules& modules) {
  for (size_t i = 0; i < modules.size(); ++i) {
    if (!is_router(modules[i])) {
      continue;
    }
    for (size_t k = i;
         k + 1 < modules.size() && modules[k + 1].kind == LayerKind::experts;
         ++k) {
      std::swap(modules[k], modules[k + 1]);
    }
  }
}

// granitemoehybrid: the network that all share comes before the experts.
void put_shared_first(Modules& modules) {
  constexpr std::string_view kExperts = "block_sparse_moe.";
  constexpr std::string_view kShared = "shared_mlp.";
  for (size_t i = 0; i < modules.size(); ++i) {
    for (size_t k = i;
         k > 0 && modules[k].name.find(kShared) != std::string::npos &&
         modules[k - 1].layer == modules[k].layer &&
         modules[k - 1].name.find(kExperts) != std::string::npos;
         --k) {
      std::swap(modules[k], modules[k - 1]);
    }
  }
}

}  // namespace

std::optional<int> layer_of(const std::string& name) {
  auto number = layer_number(name);
  if (!number) {
    return std::nullopt;
  }
  return std::stoi(name.substr(number->first, number->second - number->first));
}

std::map<const Parameter*, LayerKind> adaptable_layers(
    const models::Model& model) {
  Recorder recorder;
  models::CacheOptions options;
  options.per_layer = true;
  cache::CacheList caches = model.make_cache(options);
  nn::AdapterScope scope(&recorder);
  model.forward(mx::zeros({1, 1}, mx::int32), caches);  // never evaluated
  return recorder.asked();
}

std::vector<AdaptableModule> adaptable_modules(const models::Model& model) {
  auto layers = adaptable_layers(model);
  models::ModelSummary summary = model.summary();
  const std::string& type = summary.model_type;
  Modules modules;
  bool behind = false;
  model.visit([&](const std::string& name, const Parameter& parameter) {
    behind = behind || layer_number(name).has_value();
    auto found = layers.find(&parameter);
    if (found == layers.end()) {
      return;
    }
    AdaptableModule module;
    module.name = parent_and_leaf(name).first;
    module.kind = found->second;
    module.weights = {&parameter};
    module.layer = layer_of(name).value_or(behind ? summary.layers : -1);
    const mx::Shape& shape = parameter.shape();
    module.experts = module.kind == LayerKind::experts ? shape[0] : 0;
    module.inputs = shape.back();
    module.outputs = shape[shape.size() - 2];
    if (module.kind == LayerKind::embedding) {
      std::swap(module.inputs, module.outputs);
    }
    if (!(is_router(module) && among(type, kBareRouters))) {
      modules.push_back(std::move(module));
    }
  });
  join_wholes(type, modules);
  if (!among(type, kUpBeforeDown)) {
    put_down_before_up(modules);
  }
  if (among(type, kRouterLast)) {
    put_routers_behind_experts(modules);
  }
  if (type == "granitemoehybrid") {
    put_shared_first(modules);
  }
  for (AdaptableModule& module : modules) {
    auto number = layer_number(module.name);
    module.key = number ? module.name.substr(number->second + 1) : module.name;
    if (among(type, kWrapped) && !module.name.starts_with("language_model.")) {
      module.name = "language_model." + module.name;
      module.key = number ? module.key : module.name;
    }
  }
  return modules;
}

}  // namespace mlxx::adapters
