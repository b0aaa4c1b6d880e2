#include "mlxx/models/recurrent_tensors.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace mlxx::models {
namespace {

// transformers 5 writes infinity as {"__float__": "Infinity"}.
std::optional<double> number_in(const Json& value) {
  if (value.is_number()) {
    return value.get<double>();
  }
  if (value.is_object() && value.size() == 1 &&
      value.value("__float__", Json()) == "Infinity") {
    return std::numeric_limits<double>::infinity();
  }
  return std::nullopt;
}

}  // namespace

bool turn_convolutions(hub::TensorRewrite& tensors, std::string_view ending) {
  bool any = false;
  for (const auto& name : tensors.names()) {
    if (!name.ends_with(ending)) {
      continue;
    }
    const auto& shape = tensors.info(name).shape;
    if (shape.size() == 3 && shape[1] == 1 && shape[2] != 1) {
      tensors.transpose(name, {0, 2, 1});
      any = true;
    }
  }
  return any;
}

void add_one_to_norms(
    hub::TensorRewrite& tensors,
    const std::vector<std::string>& endings) {
  for (const auto& name : tensors.names()) {
    bool chosen = std::ranges::any_of(endings, [&](const auto& ending) {
      return name.ends_with(ending);
    });
    if (chosen && tensors.info(name).shape.size() == 1) {
      tensors.apply(name, [](const mx::array& weight) {
        return mx::add(weight, mx::array(1.0f, weight.dtype()));
      });
    }
  }
}

const std::vector<std::string>& qwen_norms() {
  static const std::vector<std::string> endings = {
      ".input_layernorm.weight",
      ".post_attention_layernorm.weight",
      "model.norm.weight",
      ".q_norm.weight",
      ".k_norm.weight"};
  return endings;
}

void check_mamba2(
    const JsonView& config,
    const nn::Mamba2Spec& mixer,
    std::string_view groups_key) {
  constexpr int64_t kMostChannels = 1 << 24;
  if (mixer.heads % mixer.groups != 0) {
    config.fail_at(
        groups_key,
        fmt::format(
            "is {}, which does not divide {} heads",
            mixer.groups,
            mixer.heads));
  }
  int64_t channels = static_cast<int64_t>(mixer.heads) * mixer.head_size +
      2 * static_cast<int64_t>(mixer.groups) * mixer.state_size;
  if (channels > kMostChannels) {
    config.fail_at(
        groups_key,
        fmt::format("and the heads make {} channels", channels));
  }
}

std::pair<float, float> read_step_limits(
    const JsonView& config,
    std::pair<float, float> fallback) {
  constexpr auto kKey = "time_step_limit";
  if (!config.has(kKey)) {
    return fallback;
  }
  const Json& value = config.json().at(kKey);
  auto lowest = value.is_array() && value.size() == 2 ? number_in(value[0])
                                                      : std::nullopt;
  auto highest = lowest ? number_in(value[1]) : std::nullopt;
  if (!highest || !(*lowest >= 0) || !(*lowest <= *highest)) {
    config.fail_at(kKey, "is not a pair of limits, the lower one first");
  }
  return {static_cast<float>(*lowest), static_cast<float>(*highest)};
}

}  // namespace mlxx::models
