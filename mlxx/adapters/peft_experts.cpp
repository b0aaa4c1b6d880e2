#include "mlxx/adapters/peft_experts.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>

#include "mlxx/base/error.h"

namespace mlxx::adapters {
namespace {

constexpr std::string_view kExperts = ".experts.";
constexpr std::string_view kSwitch = ".switch_mlp.";
constexpr size_t kLongestNumber = 5;

struct ExpertName {
  std::string stack;
  int number;
};

// "mlp.experts.3.up_proj"; nothing for other names.
std::optional<ExpertName> expert_name(const std::string& module) {
  size_t at = module.rfind(kExperts);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  size_t begin = at + kExperts.size();
  size_t end = begin;
  while (end < module.size() &&
         std::isdigit(static_cast<unsigned char>(module[end])) != 0) {
    ++end;
  }
  if (end == begin || end - begin > kLongestNumber || end == module.size() ||
      module[end] != '.') {
    return std::nullopt;
  }
  return ExpertName{
      fmt::format(
          "{}{}",
          std::string_view(module).substr(0, begin),
          std::string_view(module).substr(end + 1)),
      std::stoi(module.substr(begin, end - begin))};
}

LowRank joined(
    const std::string& stack,
    const std::map<int, const LowRank*>& experts) {
  const LowRank& first = *experts.begin()->second;
  std::vector<mx::array> a;
  std::vector<mx::array> b;
  int next = 0;
  for (const auto& [number, one] : experts) {
    if (number != next++) {
      fail(
          ErrorKind::bad_file,
          "adapter",
          "'{}' lacks expert {}",
          stack,
          next - 1);
    }
    if (one->magnitude) {
      fail(
          ErrorKind::unsupported,
          "adapter",
          "'{}' is DoRA of experts, which is not defined",
          one->module);
    }
    if (one->a.shape() != first.a.shape() ||
        one->b.shape() != first.b.shape() || one->scale != first.scale) {
      fail(
          ErrorKind::bad_file,
          "adapter",
          "'{}' differs from the other experts in shape, rank or scale",
          one->module);
    }
    a.push_back(mx::transpose(one->a));
    b.push_back(mx::transpose(one->b));
  }
  mx::array all_a = mx::stack(a, 0);
  mx::array all_b = mx::stack(b, 0);
  mx::eval(all_a, all_b);
  return {stack, all_a, all_b, first.scale, std::nullopt};
}

mx::array of_expert(const mx::array& stack, int expert) {
  return mx::transpose(mx::take(stack, expert, 0));
}

}  // namespace

std::vector<LowRank> join_experts(std::vector<LowRank> modules) {
  std::map<std::string, std::map<int, const LowRank*>> stacks;
  std::vector<LowRank> result;
  for (const LowRank& module : modules) {
    if (auto name = expert_name(module.module)) {
      if (!stacks[name->stack].emplace(name->number, &module).second) {
        fail(
            ErrorKind::bad_file,
            "adapter",
            "'{}' has expert {} twice",
            name->stack,
            name->number);
      }
    } else {
      result.push_back(module);
    }
  }
  for (const auto& [stack, experts] : stacks) {
    result.push_back(joined(stack, experts));
  }
  return result;
}

std::vector<LowRank> part_experts(const std::vector<LowRank>& modules) {
  std::vector<LowRank> result;
  for (const LowRank& module : modules) {
    if (module.a.ndim() != 3) {
      result.push_back(module);
      continue;
    }
    size_t at = module.module.rfind(kSwitch);
    if (at == std::string::npos) {
      fail(
          ErrorKind::unsupported,
          "PEFT layout",
          "has no form for the experts of '{}'; MLX's layout has",
          module.module);
    }
    std::string_view name = module.module;
    for (int expert = 0; expert < module.a.shape(0); ++expert) {
      result.push_back(
          {fmt::format(
               "{}{}{}.{}",
               name.substr(0, at),
               kExperts,
               expert,
               name.substr(at + kSwitch.size())),
           of_expert(module.a, expert),
           of_expert(module.b, expert),
           module.scale,
           std::nullopt});
    }
  }
  return result;
}

}  // namespace mlxx::adapters
