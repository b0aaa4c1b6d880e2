#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/gguf_architecture.h"

namespace mlxx::hub {

std::vector<float>
read_gguf_factors(const GgufFile& file, std::string_view name, int64_t count) {
  const GgufTensor* tensor = find_gguf_tensor(file, name);
  if (!tensor) {
    return {};
  }
  const std::string& place = file.metadata().place();
  if (tensor->type->id != kGgufF32 || tensor->shape.size() != 1 ||
      tensor->shape[0] != count) {
    fail(
        ErrorKind::bad_file,
        place,
        "'{}' must hold {} F32 numbers",
        name,
        count);
  }
  std::vector<float> factors(static_cast<size_t>(count));
  file.file().check_size();
  std::memcpy(
      factors.data(),
      file.file().bytes().data() + tensor->offset,
      tensor->nbytes);
  for (float factor : factors) {
    if (!std::isfinite(factor) || factor <= 0) {
      fail(
          ErrorKind::bad_file,
          place,
          "'{}' holds {}, must be above 0",
          name,
          factor);
    }
  }
  return factors;
}

namespace {

// The factors that Llama 3's rule gives, as the converter computes them.
bool is_llama3(
    const std::vector<float>& factors,
    double base,
    double factor,
    double trained_length) {
  constexpr double kLow = 1, kHigh = 4;
  double dims = 2.0 * static_cast<double>(factors.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    double wave = 2 * std::numbers::pi *
        std::pow(base, 2.0 * static_cast<double>(i) / dims);
    double expected = 1;
    if (wave > trained_length / kLow) {
      expected = factor;
    } else if (wave >= trained_length / kHigh) {
      double smooth = (trained_length / wave - kLow) / (kHigh - kLow);
      expected = 1 / ((1 - smooth) / factor + smooth);
    }
    if (std::abs(factors[i] - expected) > 1e-3 * expected) {
      return false;
    }
  }
  return true;
}

Json scaling_of_factors(
    const std::vector<float>& factors,
    double base,
    int64_t context_length,
    std::optional<int64_t> trained_length) {
  double largest = *std::ranges::max_element(factors);
  double smallest = *std::ranges::min_element(factors);
  if (largest == 1 && smallest == 1) {
    return nullptr;
  }
  for (int64_t length : {trained_length.value_or(8192), int64_t{8192}}) {
    if (is_llama3(factors, base, largest, static_cast<double>(length))) {
      return {
          {"rope_type", "llama3"},
          {"factor", largest},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", length}};
    }
  }
  // Any other list: longrope, whose scale of the input is 1 where the trained
  // length is the whole context.
  return {
      {"rope_type", "longrope"},
      {"long_factor", factors},
      {"short_factor", factors},
      {"original_max_position_embeddings", context_length}};
}

}  // namespace

Json make_rope_scaling(
    const GgufFile& file,
    const std::string& architecture,
    int64_t head_size,
    double base,
    int64_t context_length) {
  const GgufMetadata& metadata = file.metadata();
  std::string prefix = architecture + ".rope.scaling.";
  std::string type = metadata.string_if(prefix + "type").value_or("none");
  auto factor = metadata.number_if(prefix + "factor");
  if (!factor) {
    // The key of older files, always linear.
    factor = metadata.number_if(architecture + ".rope.scale_linear");
    if (factor && *factor != 0 && *factor != 1 && type == "none") {
      type = "linear";
    }
  }
  auto trained =
      metadata.integer_if(prefix + "original_context_length", 1, INT32_MAX);
  // What each wavelength is multiplied with.
  auto factors = read_gguf_factors(file, "rope_freqs.weight", head_size / 2);
  if (!factors.empty()) {
    if (type != "none") {
      fail(
          ErrorKind::unsupported,
          metadata.place(),
          "rope scaling '{}' together with 'rope_freqs.weight'",
          type);
    }
    return scaling_of_factors(factors, base, context_length, trained);
  }
  if (type == "none") {
    return nullptr;
  }
  if (type != "linear" && type != "yarn") {
    fail(
        ErrorKind::unsupported,
        metadata.place(),
        "rope scaling '{}'; none, linear and yarn can be read",
        type);
  }
  if (!factor || *factor <= 0) {
    metadata.fail_at(prefix + "factor", "must be given and above 0");
  }
  Json scaling = {{"rope_type", type}, {"factor", *factor}};
  if (type == "linear") {
    return scaling;
  }
  // llama.cpp multiplies attention by this on top of YaRN's own rule.
  for (const char* key :
       {"attn_factor", "yarn_attn_factor", "yarn_ext_factor"}) {
    double value = metadata.number_if(prefix + key).value_or(1);
    if (value != 1) {
      fail(
          ErrorKind::unsupported,
          metadata.place(),
          "'{}{}' is {}",
          prefix,
          key,
          value);
    }
  }
  if (!trained) {
    metadata.fail_at(prefix + "original_context_length", "is missing");
  }
  scaling["original_max_position_embeddings"] = *trained;
  for (const char* key : {"beta_fast", "beta_slow"}) {
    if (auto value = metadata.number_if(prefix + "yarn_" + key)) {
      scaling[key] = *value;
    }
  }
  return scaling;
}

}  // namespace mlxx::hub
