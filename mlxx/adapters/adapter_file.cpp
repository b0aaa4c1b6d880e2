#include "mlxx/adapters/adapter_file.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "mlxx/adapters/adapter_tensors.h"
#include "mlxx/adapters/peft_experts.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"

namespace mlxx::adapters {
namespace {

constexpr size_t kLongestConfig = 4 << 20;
constexpr int kHighestRank = 4096;
constexpr const char* kConfig = "adapter_config.json";

void put(
    Modules& modules,
    const std::string& module,
    const SafetensorsEntry* ModuleTensors::* part,
    const SafetensorsEntry& entry) {
  if (modules[module].*part) {
    fail(
        ErrorKind::bad_file,
        "adapter",
        "tensor '{}' stands for what another one is already",
        entry.name);
  }
  modules[module].*part = &entry;
}

[[noreturn]] void unknown_tensor(const SafetensorsEntry& entry) {
  fail(
      ErrorKind::unsupported,
      "adapter",
      "tensor '{}' is neither of a linear layer's two matrices",
      entry.name);
}

// Nothing is dropped when a model runs, but a file that says so is damaged.
void check_dropout(const JsonView& config, const char* key) {
  double dropout = config.number_or(key, 0);
  if (!(dropout >= 0 && dropout < 1)) {
    config.fail_at(
        key,
        fmt::format("must be at least 0 and below 1, it is {}", dropout));
  }
}

void check_not_empty(const Modules& modules) {
  if (modules.empty()) {
    fail(ErrorKind::bad_file, "adapter", "has no tensors");
  }
}

// mlx_lm/tuner/utils.py: load_adapters.
AdapterFile read_mlx_lm(const SafetensorsFile& file, const JsonView& config) {
  std::string kind = config.string_or("fine_tune_type", "lora");
  if (kind != "lora" && kind != "dora") {
    fail(
        ErrorKind::unsupported,
        kConfig,
        "fine_tune_type is '{}'; known are lora and dora",
        kind);
  }
  JsonView parameters = config.object("lora_parameters");
  auto rank = static_cast<int>(parameters.integer("rank", 1, kHighestRank));
  double scale = 0;
  if (parameters.has("scale")) {
    scale = parameters.number("scale");
    double alpha = parameters.number_or("alpha", scale * rank);
    if (std::abs(alpha / rank - scale) > 1e-6 * std::abs(scale)) {
      parameters.fail_at(
          "alpha",
          fmt::format(
              "is {} of rank {}, which the scale of {} contradicts",
              alpha,
              rank,
              scale));
    }
  } else if (parameters.has("alpha")) {
    scale = parameters.number("alpha") / rank;
  } else {
    parameters.fail_at("scale", "is missing");
  }
  check_dropout(parameters, "dropout");
  Modules modules;
  for (const SafetensorsEntry& entry : file.entries()) {
    size_t dot = entry.name.rfind('.');
    std::string module = entry.name.substr(0, dot);
    std::string part =
        dot == std::string::npos ? "" : entry.name.substr(dot + 1);
    if (part == "lora_a") {
      put(modules, module, &ModuleTensors::a, entry);
    } else if (part == "lora_b") {
      put(modules, module, &ModuleTensors::b, entry);
    } else if (part == "m") {
      put(modules, module, &ModuleTensors::magnitude, entry);
    } else {
      unknown_tensor(entry);
    }
  }
  check_not_empty(modules);
  AdapterFile result{"mlx-lm", {}};
  for (const auto& [module, tensors] : modules) {
    result.modules.push_back(
        load_module(file, module, tensors, false, kind == "dora", rank, scale));
  }
  return result;
}

// Options that change what is computed, with the values that do not.
void check_peft_options(const JsonView& config) {
  const Json& json = config.json();
  auto is_off = [](const Json& value) {
    return value.is_null() || value == false || value == 0 ||
        ((value.is_array() || value.is_object() || value.is_string()) &&
         value.empty());
  };
  for (const char* key :
       {"modules_to_save",
        "layer_replication",
        "lora_bias",
        "trainable_token_indices",
        "target_parameters",
        "use_qalora",
        "use_bdlora",
        "alora_invocation_tokens",
        "arrow_config",
        "megatron_config",
        "velora_config",
        "monteclora_config"}) {
    if (auto found = json.find(key); found != json.end() && !is_off(*found)) {
      fail(
          ErrorKind::unsupported,
          kConfig,
          "option '{}' is not implemented, it is {}",
          key,
          found->dump().substr(0, 100));
    }
  }
  std::string bias = config.string_or("bias", "none");
  if (bias != "none") {
    fail(
        ErrorKind::unsupported,
        kConfig,
        "option 'bias' is not implemented, it is '{}'",
        bias);
  }
  // These start from a base that was changed.
  auto start = json.find("init_lora_weights");
  if (start != json.end() && start->is_string()) {
    std::string name = start->get<std::string>();
    if (name.starts_with("pissa") || name == "olora" || name == "corda" ||
        name == "loftq") {
      fail(
          ErrorKind::unsupported,
          kConfig,
          "init_lora_weights '{}' changes the base model",
          name);
    }
  }
}

// The value of the first pattern that the module's name ends in. PEFT takes
// them for regular expressions; those of files could be made to run for ever.
double pattern_value(
    const Json& config,
    const char* key,
    const std::string& module,
    double otherwise) {
  auto patterns = config.find(key);
  if (patterns == config.end() || patterns->is_null()) {
    return otherwise;
  }
  if (!patterns->is_object()) {
    fail(ErrorKind::bad_file, kConfig, "'{}' is no object", key);
  }
  for (const auto& [pattern, value] : patterns->items()) {
    if (pattern.empty() ||
        pattern.find_first_of("^$*+?()[]{}|\\") != std::string::npos) {
      fail(
          ErrorKind::unsupported,
          kConfig,
          "'{}' has a pattern that is not a plain name: '{}'",
          key,
          pattern.substr(0, 100));
    }
    bool matches = module == pattern ||
        (module.ends_with(pattern) &&
         module[module.size() - pattern.size() - 1] == '.');
    if (matches) {
      if (!value.is_number()) {
        fail(
            ErrorKind::bad_file,
            kConfig,
            "'{}' of '{}' is no number",
            key,
            pattern);
      }
      return value.get<double>();
    }
  }
  return otherwise;
}

// peft/tuners/lora: LoraConfig and LoraLayer.
AdapterFile read_peft(const SafetensorsFile& file, const JsonView& config) {
  std::string type = config.string("peft_type");
  if (type != "LORA") {
    fail(
        ErrorKind::unsupported,
        kConfig,
        "peft_type is '{}'; known is LORA",
        type);
  }
  check_peft_options(config);
  auto rank = static_cast<int>(config.integer("r", 1, kHighestRank));
  double alpha = config.number_or("lora_alpha", 8);
  check_dropout(config, "lora_dropout");
  bool by_root = config.boolean_or("use_rslora", false);
  bool dora = config.boolean_or("use_dora", false);
  // How the base stores its matrices; the adapter's are the same in both.
  config.boolean_or("fan_in_fan_out", false);
  Modules modules;
  constexpr std::string_view kPrefix = "base_model.model.";
  for (const SafetensorsEntry& entry : file.entries()) {
    std::string_view name = entry.name;
    if (!name.starts_with(kPrefix)) {
      unknown_tensor(entry);
    }
    name.remove_prefix(kPrefix.size());
    auto ends = [&](std::string_view end) {
      if (!name.ends_with(end)) {
        return false;
      }
      name.remove_suffix(end.size());
      return true;
    };
    if (ends(".lora_A.weight") || ends(".lora_A.default.weight") ||
        ends(".lora_embedding_A")) {
      put(modules, std::string(name), &ModuleTensors::a, entry);
    } else if (
        ends(".lora_B.weight") || ends(".lora_B.default.weight") ||
        ends(".lora_embedding_B")) {
      put(modules, std::string(name), &ModuleTensors::b, entry);
    } else if (
        ends(".lora_magnitude_vector") ||
        ends(".lora_magnitude_vector.weight") ||
        ends(".lora_magnitude_vector.default.weight")) {
      put(modules, std::string(name), &ModuleTensors::magnitude, entry);
    } else {
      unknown_tensor(entry);
    }
  }
  check_not_empty(modules);
  AdapterFile result{"peft", {}};
  for (const auto& [module, tensors] : modules) {
    double own = pattern_value(config.json(), "rank_pattern", module, rank);
    if (own < 1 || own > kHighestRank || own != std::floor(own)) {
      fail(
          ErrorKind::bad_file,
          kConfig,
          "rank_pattern gives '{}' a rank of {}",
          module,
          own);
    }
    double own_alpha =
        pattern_value(config.json(), "alpha_pattern", module, alpha);
    double scale = own_alpha / (by_root ? std::sqrt(own) : own);
    result.modules.push_back(load_module(
        file,
        module,
        tensors,
        true,
        dora,
        static_cast<int>(own),
        scale));
  }
  result.modules = join_experts(std::move(result.modules));
  return result;
}

}  // namespace

AdapterFile read_adapter(const std::filesystem::path& folder) {
  std::filesystem::path config_path = folder / kConfig;
  if (!std::filesystem::is_regular_file(config_path)) {
    fail(
        ErrorKind::not_found,
        "adapter",
        "there is no {} in {}",
        kConfig,
        folder.string());
  }
  Json json = parse_json(read_file(config_path, kLongestConfig), kConfig);
  if (!json.is_object()) {
    fail(ErrorKind::bad_file, kConfig, "is no object");
  }
  JsonView config(json, kConfig);
  bool peft = config.has("peft_type");
  std::filesystem::path weights =
      folder / (peft ? "adapter_model.safetensors" : "adapters.safetensors");
  if (!std::filesystem::is_regular_file(weights)) {
    fail(ErrorKind::not_found, "adapter", "there is no {}", weights.string());
  }
  SafetensorsFile file(weights);
  return peft ? read_peft(file, config) : read_mlx_lm(file, config);
}

}  // namespace mlxx::adapters
