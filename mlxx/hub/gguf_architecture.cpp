#include "mlxx/hub/gguf_architecture.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "mlxx/base/error.h"

namespace mlxx::hub {

extern const GgufArchitecture kGgufGemma2;
extern const GgufArchitecture kGgufGemma3;
extern const GgufArchitecture kGgufLlama;
extern const GgufArchitecture kGgufPhi3;
extern const GgufArchitecture kGgufQwen2;
extern const GgufArchitecture kGgufQwen3;

namespace {

constexpr const GgufArchitecture* kArchitectures[] = {
    &kGgufGemma2,
    &kGgufGemma3,
    &kGgufLlama,
    &kGgufPhi3,
    &kGgufQwen2,
    &kGgufQwen3};

// The number between "blk." and the next point; empty without one.
std::string_view layer_number(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) {
    return {};
  }
  name.remove_prefix(kPrefix.size());
  auto end = name.find_first_not_of("0123456789");
  bool is_number = end != 0 && end != std::string_view::npos &&
      name[end] == '.' && (name[0] != '0' || end == 1) && end <= 6;
  return is_number ? name.substr(0, end) : std::string_view{};
}

}  // namespace

const GgufArchitecture& find_gguf_architecture(const GgufFile& file) {
  std::string name = file.metadata().string("general.architecture");
  std::vector<std::string_view> known;
  for (const auto* architecture : kArchitectures) {
    if (architecture->name == name) {
      return *architecture;
    }
    known.push_back(architecture->name);
  }
  fail(
      ErrorKind::unsupported,
      file.metadata().place(),
      "the architecture '{}' is not known for GGUF files; known: {}",
      name,
      fmt::join(known, ", "));
}

std::optional<std::string> hub_tensor_name(
    const GgufArchitecture& architecture,
    std::string_view gguf_name,
    const std::string& place) {
  if (std::ranges::find(architecture.consumed, gguf_name) !=
      architecture.consumed.end()) {
    return std::nullopt;
  }
  auto point = gguf_name.rfind('.');
  std::string_view suffix =
      point == std::string_view::npos ? "" : gguf_name.substr(point);
  if (suffix == ".weight" || suffix == ".bias") {
    std::string_view number = layer_number(gguf_name);
    // "blk.12.attn_q" -> "blk.{}.attn_q"
    std::string stem(gguf_name.substr(0, point));
    if (!number.empty()) {
      stem.replace(4, number.size(), "{}");
    }
    for (const auto& module : architecture.modules) {
      if (module.gguf == stem) {
        std::string name(module.hub);
        if (!number.empty()) {
          name.replace(name.find("{}"), 2, number);
        }
        return name.append(suffix);
      }
    }
  }
  fail(
      ErrorKind::unsupported,
      place,
      "tensor '{}' is not known in the architecture '{}'",
      gguf_name,
      architecture.name);
}

const GgufTensor* find_gguf_tensor(
    const GgufFile& file,
    std::string_view name) {
  for (const auto& tensor : file.tensors()) {
    if (tensor.name == name) {
      return &tensor;
    }
  }
  return nullptr;
}

}  // namespace mlxx::hub
