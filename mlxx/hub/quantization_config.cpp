#include "mlxx/hub/quantization_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx::hub {

namespace {

struct Mode {
  std::string_view name;
  // The one size that MLX has for it; 0: several.
  int group_size;
  int bits;
};

constexpr Mode kModes[] = {
    {"affine", 0, 0},
    {"mxfp4", 32, 4},
    {"mxfp8", 32, 8},
    {"nvfp4", 16, 4},
};

Quantization read_entry(const JsonView& view, const Quantization& fallback) {
  Quantization q = fallback;
  q.mode = view.string_or("mode", fallback.mode);
  auto mode = std::ranges::find(kModes, q.mode, &Mode::name);
  if (mode == std::end(kModes)) {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "quantization mode '{}'; known: affine, mxfp4, mxfp8, nvfp4",
        q.mode);
  }
  if (q.mode != fallback.mode && mode->bits > 0) {
    q.group_size = mode->group_size;
    q.bits = mode->bits;
  }
  q.has_global_scale = view.boolean_or("global_scale", false);
  q.group_size =
      static_cast<int>(view.integer_or("group_size", q.group_size, 1, 1 << 16));
  q.bits = static_cast<int>(view.integer_or("bits", q.bits, 1, 32));
  bool fits = mode->bits > 0
      ? q.bits == mode->bits && q.group_size == mode->group_size
      : (q.group_size == 32 || q.group_size == 64 || q.group_size == 128) &&
          (q.bits == 2 || q.bits == 3 || q.bits == 4 || q.bits == 5 ||
           q.bits == 6 || q.bits == 8);
  if (!fits) {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "{} quantization with {} bits in groups of {}",
        q.mode,
        q.bits,
        q.group_size);
  }
  return q;
}

}  // namespace

QuantizationConfig QuantizationConfig::read(const Json& config) {
  QuantizationConfig result;
  JsonView top(config, "config.json");
  const char* key =
      top.has("quantization") ? "quantization" : "quantization_config";
  if (!top.has(key)) {
    return result;
  }
  JsonView view = top.object(key);
  if (view.json().empty()) {
    return result;
  }
  // mlx-lm writes its own settings under both names, without a method.
  if (key == std::string_view("quantization_config") &&
      view.has("quant_method")) {
    return result;
  }
  if (!view.has("bits") && !view.has("group_size") && !view.has("mode")) {
    fail(
        ErrorKind::unsupported,
        view.place(),
        "a quantization without 'bits' and 'group_size'");
  }
  // mlx-lm's defaults.
  result.default_ = read_entry(view, {64, 4, "affine"});
  // A module's entry that names no mode is affine, whatever the others are.
  Quantization own_default = *result.default_;
  if (own_default.mode != "affine") {
    own_default = {64, 4, "affine"};
  }
  for (const auto& [name, value] : view.json().items()) {
    if (value.is_object()) {
      result.own_[name] = read_entry(view.object(name), own_default);
    } else if (value.is_boolean() && name.find('.') != std::string::npos) {
      result.own_[name] = value.get<bool>() ? result.default_ : std::nullopt;
    } else if (value.is_boolean() && !value.get<bool>()) {
      result.own_[name] = std::nullopt;
    }
  }
  return result;
}

std::optional<Quantization> QuantizationConfig::of(
    const std::string& module) const {
  auto own = own_.find(module);
  if (own != own_.end()) {
    return own->second;
  }
  auto all = default_;
  if (all) {
    all->is_default = true;
  }
  return all;
}

}  // namespace mlxx::hub
