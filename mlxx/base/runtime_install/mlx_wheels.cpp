#include "mlxx/base/runtime_install/mlx_wheels.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/runtime_install/mlx_wheels_json.h"

namespace mlxx::runtime {

namespace {

#ifdef __APPLE__
constexpr std::string_view kSystem = "macos";
#else
constexpr std::string_view kSystem = "linux";
#endif
#if defined(__x86_64__)
constexpr std::string_view kMachine = "x86_64";
#elif defined(__APPLE__)
constexpr std::string_view kMachine = "arm64";
#else
constexpr std::string_view kMachine = "aarch64";
#endif

// Major version of macOS, 0 elsewhere.
int macos_version() {
  int major = 0;
#ifdef __APPLE__
  char text[64] = {};
  size_t size = sizeof text - 1;
  if (sysctlbyname("kern.osproductversion", text, &size, nullptr, 0) == 0) {
    std::from_chars(text, text + size, major);
  }
#endif
  return major;
}

// macosx_14_0_arm64 needs macOS 14; other platforms match by name alone.
bool runs_on_this_system(const std::string& platform) {
  constexpr std::string_view kMacos = "macosx_";
  if (!platform.starts_with(kMacos)) {
    return true;
  }
  int major = 0;
  std::from_chars(
      platform.data() + kMacos.size(),
      platform.data() + platform.size(),
      major);
  return major <= macos_version();
}

std::vector<WheelPin> for_this_machine(const Json& wheels) {
  std::vector<WheelPin> pins;
  for (const Json& wheel : wheels) {
    WheelPin pin;
    pin.platform = wheel.at("platform").get<std::string>();
    if (wheel.at("system") != kSystem || wheel.at("machine") != kMachine ||
        !runs_on_this_system(pin.platform)) {
      continue;
    }
    pin.file = wheel.at("file").get<std::string>();
    pin.sha256 = wheel.at("sha256").get<std::string>();
    size_t name_end = pin.file.find('-');
    size_t version_end = pin.file.find('-', name_end + 1);
    pin.package = pin.file.substr(0, name_end);
    std::replace(pin.package.begin(), pin.package.end(), '_', '-');
    pin.version = pin.file.substr(name_end + 1, version_end - name_end - 1);
    pins.push_back(std::move(pin));
  }
  return pins;
}

Json read_variants() {
  return parse_json(kMlxWheelsJson, "mlx_wheels.json").at("variants");
}

}  // namespace

std::vector<std::string> known_variants() {
  std::vector<std::string> names;
  Json variants = read_variants();
  for (const auto& [name, variant] : variants.items()) {
    names.push_back(name);
  }
  return names;
}

VariantPins pins_for_this_machine(std::string_view variant) {
  Json variants = read_variants();
  auto found = variants.find(std::string(variant));
  if (found == variants.end()) {
    fail(
        ErrorKind::invalid_request,
        "runtime",
        "'{}' is no variant of MLX; there are {}",
        variant,
        fmt::join(known_variants(), ", "));
  }
  auto wheels = for_this_machine(found->at("wheels"));
  if (wheels.empty()) {
    fail(
        ErrorKind::unsupported,
        "runtime",
        "there is no '{}' variant of MLX for {} {}",
        variant,
        kSystem,
        kMachine);
  }
  VariantPins pins{
      .name = std::string(variant),
      .mlx = wheels.front(),
      .libraries = {}};
  if (found->contains("libraries")) {
    pins.libraries = for_this_machine(found->at("libraries"));
  }
  return pins;
}

}  // namespace mlxx::runtime
