#include "mlxx/adapters/module_names.h"

#include <utility>

#include <fmt/format.h>

namespace mlxx::adapters {
namespace {

constexpr std::string_view kWrapped = "language_model.";
constexpr std::string_view kExperts = ".experts.";
constexpr std::string_view kSwitch = ".switch_mlp.";
// Mixtral's names of the three matrices.
constexpr std::pair<std::string_view, std::string_view> kLeaves[] = {
    {"w1", "gate_proj"},
    {"w2", "down_proj"},
    {"w3", "up_proj"}};

// Stacks that were joined from PEFT's modules of experts.
void add_expert_names(std::vector<std::string>& names) {
  for (size_t i = 0, all = names.size(); i < all; ++i) {
    size_t at = names[i].rfind(kExperts);
    if (at == std::string::npos) {
      continue;
    }
    std::string_view start = std::string_view(names[i]).substr(0, at);
    std::string_view leaf =
        std::string_view(names[i]).substr(at + kExperts.size());
    for (const auto& [other, usual] : kLeaves) {
      leaf = leaf == other ? usual : leaf;
    }
    std::string stack = fmt::format("{}.switch_mlp.{}", start, leaf);
    names.push_back(std::move(stack));
  }
}

}  // namespace

std::vector<std::string> names_of(std::string_view module) {
  std::vector<std::string> names = {std::string(module)};
  constexpr std::string_view kTransformer = "transformer.";
  if (module.starts_with(kWrapped)) {
    names.emplace_back(module.substr(kWrapped.size()));
  }
  if (module.starts_with(kTransformer)) {
    names.push_back(
        fmt::format("model.{}", module.substr(kTransformer.size())));
  }
  // transformers' and mlx-lm's ways to wrap a decoder.
  constexpr std::string_view kInner = "model.language_model.";
  constexpr std::string_view kOuter = "language_model.model.";
  if (module.starts_with(kInner)) {
    names.push_back(fmt::format("model.{}", module.substr(kInner.size())));
  }
  if (module.starts_with(kOuter)) {
    names.push_back(fmt::format("{}{}", kInner, module.substr(kOuter.size())));
  }
  names.push_back(fmt::format("model.{}", module));
  add_expert_names(names);
  return names;
}

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

std::vector<std::string> expert_names_of(std::string_view module, int expert) {
  size_t at = module.rfind(kSwitch);
  if (at == std::string_view::npos) {
    return {};
  }
  std::string_view leaf = module.substr(at + kSwitch.size());
  std::string start =
      fmt::format("{}{}{}.", module.substr(0, at), kExperts, expert);
  std::vector<std::string> names = {start + std::string(leaf)};
  for (const auto& [other, usual] : kLeaves) {
    if (leaf == usual) {
      names.push_back(start + std::string(other));
    }
  }
  return names;
}

}  // namespace mlxx::adapters
