#include "mlxx/hub/foreign_quantization.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/text_files.h"

namespace mlxx::hub {

namespace {

constexpr auto kPlace = "config.json: quantization_config";

struct Method {
  std::string_view name;
  void (*convert)(TensorRewrite&, const JsonView&);
};

constexpr Method kMethods[] = {
    {"fp8", convert_fp8},
    {"awq", convert_awq},
    {"gptq", convert_gptq},
    {"compressed-tensors", convert_compressed_tensors},
    {"modelopt", convert_modelopt},
    {"mxfp4", nullptr},
};

const Json* find_settings(const Json& config) {
  constexpr auto kKey = "quantization_config";
  auto found = config.find(kKey);
  if (found != config.end() && found->is_object()) {
    return &*found;
  }
  auto text = config.find("text_config");
  if (text != config.end() && text->is_object()) {
    return find_settings(*text);
  }
  return nullptr;
}

// Whatever is left in a form that only a quantized matrix has.
void check_rest(const TensorRewrite& tensors, const std::string& method) {
  for (const auto& name : tensors.names()) {
    const TensorInfo& info = tensors.info(name);
    bool is_packed = info.stored.starts_with("F8_") || info.stored == "I32" ||
        info.stored == "I8";
    if (is_packed && !info.quantization && info.loads_as.empty()) {
      fail(
          ErrorKind::bad_file,
          tensors.place(),
          "tensor '{}' of {} has no scales, which '{}' needs",
          name,
          info.stored,
          method);
    }
  }
}

}  // namespace

std::optional<ForeignQuantization> ForeignQuantization::find(
    const Json& config,
    const std::filesystem::path& folder) {
  if (auto own = config.find("quantization");
      own != config.end() && own->is_object()) {
    return std::nullopt;
  }
  ForeignQuantization result;
  const Json* settings = find_settings(config);
  auto file = folder / "hf_quant_config.json";
  if (settings) {
    result.settings = std::make_shared<const Json>(*settings);
  } else if (std::filesystem::exists(file)) {
    Json read = read_json_object(file);
    if (!read.contains("quant_method")) {
      read["quant_method"] = "modelopt";
    }
    result.settings = std::make_shared<const Json>(std::move(read));
  } else {
    return std::nullopt;
  }
  JsonView view(*result.settings, kPlace);
  if (!view.has("quant_method")) {
    return std::nullopt;
  }
  result.method = view.string("quant_method");
  result.format = view.string_or("format", "");
  auto found = std::ranges::find(kMethods, result.method, &Method::name);
  if (found == std::end(kMethods)) {
    std::vector<std::string_view> known;
    for (const auto& method : kMethods) {
      known.push_back(method.name);
    }
    fail(
        ErrorKind::unsupported,
        view.place(),
        "weights quantized with '{}'; known are MLX's own quantization, {}",
        result.method,
        fmt::join(known, ", "));
  }
  return result;
}

std::shared_ptr<const Checkpoint> convert_foreign(
    std::shared_ptr<const Checkpoint> raw,
    const ForeignQuantization& quantization) {
  TensorRewrite tensors(std::move(raw));
  JsonView settings(*quantization.settings, kPlace);
  auto method = std::ranges::find(kMethods, quantization.method, &Method::name);
  method->convert(tensors, settings);
  check_rest(tensors, quantization.method);
  return std::move(tensors).finish();
}

}  // namespace mlxx::hub
