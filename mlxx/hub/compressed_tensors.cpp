// compressed-tensors (llm-compressor) and NVIDIA's ModelOpt: containers of
// several ways of packing. Each module is read as its own tensors say, within
// what the config allows.
// Reference: https://github.com/neuralmagic/compressed-tensors
#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/foreign_quantization.h"
#include "mlxx/hub/fp8_weights.h"
#include "mlxx/hub/packed_integers.h"

namespace mlxx::hub {

namespace {

constexpr std::string_view kFormats[] = {
    "pack-quantized",
    "int-quantized",
    "naive-quantized",
    "float-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mixed-precision",
    "dense"};

// One of config_groups: how the weights of its modules were quantized.
struct WeightScheme {
  bool is_float;
  int bits;
  int64_t group;  // -1: one scale for a row or for all
  std::vector<int64_t> block;
};

void check_format(const std::string& format, const JsonView& settings) {
  if (std::ranges::find(kFormats, format) == std::end(kFormats)) {
    fail(
        ErrorKind::unsupported,
        settings.place(),
        "compressed-tensors in the format '{}'; known are {}",
        format,
        fmt::join(kFormats, ", "));
  }
}

WeightScheme read_scheme(const JsonView& weights) {
  WeightScheme scheme{
      .is_float = weights.string_or("type", "int") == "float",
      .bits = static_cast<int>(weights.integer("num_bits", 1, 32)),
      .group = weights.integer_or("group_size", -1, -1, INT32_MAX),
      .block = {}};
  for (double size : weights.numbers_or_empty("block_structure")) {
    if (size < 1 || size > 1 << 20) {
      weights.fail_at("block_structure", "must hold two sizes");
    }
    scheme.block.push_back(static_cast<int64_t>(size));
  }
  if (!scheme.block.empty() && scheme.block.size() != 2) {
    weights.fail_at("block_structure", "must hold two sizes");
  }
  return scheme;
}

std::vector<WeightScheme> read_schemes(const JsonView& settings) {
  std::vector<WeightScheme> schemes;
  JsonView groups = settings.object("config_groups");
  for (const auto& [name, group] : groups.json().items()) {
    JsonView view = groups.object(name);
    if (view.has("format")) {
      check_format(view.string("format"), settings);
    }
    if (view.has("weights")) {
      schemes.push_back(read_scheme(view.object("weights")));
    }
  }
  return schemes;
}

[[noreturn]] void fail_module(
    const TensorRewrite& tensors,
    const std::string& module,
    std::string_view what) {
  std::vector<std::string> parts;
  for (const char* part :
       {"weight",
        "weight_packed",
        "weight_scale",
        "weight_zero_point",
        "weight_g_idx",
        "weight_global_scale"}) {
    std::string name = fmt::format("{}.{}", module, part);
    if (tensors.has(name)) {
      const TensorInfo& info = tensors.info(name);
      parts.push_back(fmt::format(
          "{} {} [{}]",
          part,
          info.stored,
          fmt::join(info.shape, ", ")));
    }
  }
  fail(
      ErrorKind::bad_file,
      tensors.place(),
      "'{}' with {}: {}",
      module,
      fmt::join(parts, ", "),
      what);
}

bool is_matrix(const TensorInfo& info, std::string_view stored) {
  return info.stored == stored && info.shape.size() == 2 && info.shape[0] > 0 &&
      info.shape[1] > 0;
}

bool is_floating(const TensorInfo& info) {
  return info.stored == "F16" || info.stored == "BF16" || info.stored == "F32";
}

// Integers with scales [out, groups], [out, 1] or [1]; `in` as the numbers say.
std::optional<PackedIntegers> fit_integers(
    const std::string& module,
    const TensorInfo& scale,
    const WeightScheme& scheme,
    int64_t out,
    int64_t in) {
  PackedIntegers matrix{
      .module = module,
      .out = out,
      .in = in,
      .group = scheme.group > 0 ? scheme.group : in,
      .bits = scheme.bits};
  bool is_one =
      std::ranges::all_of(scale.shape, [](int64_t n) { return n == 1; });
  bool fits = in % matrix.group == 0 &&
      ((is_one && scheme.group <= 0) ||
       scale.shape == std::vector<int64_t>{out, in / matrix.group});
  return fits ? std::optional(matrix) : std::nullopt;
}

// weight_packed I32 [out, in * bits / 32] with q + 2^(bits - 1), zero points
// packed alike along the outputs; or weight I8 [out, in] with q.
void convert_integers(
    TensorRewrite& tensors,
    const std::string& module,
    const std::vector<WeightScheme>& schemes,
    bool is_packed) {
  std::string numbers = module + (is_packed ? ".weight_packed" : ".weight");
  std::string scale = module + ".weight_scale";
  const TensorInfo& info = tensors.info(numbers);
  const TensorInfo& scale_info = tensors.info(scale);
  std::optional<PackedIntegers> found;
  for (const auto& scheme : schemes) {
    bool is_usable = !scheme.is_float && is_floating(scale_info) &&
        32 % scheme.bits == 0 && (is_packed || scheme.bits == 8);
    if (is_usable && !found) {
      auto columns = static_cast<__int128>(info.shape[1]) *
          (is_packed ? 32 / scheme.bits : 1);
      found = columns <= INT32_MAX ? fit_integers(
                                         module,
                                         scale_info,
                                         scheme,
                                         info.shape[0],
                                         static_cast<int64_t>(columns))
                                   : std::nullopt;
    }
  }
  if (!found) {
    fail_module(tensors, module, "fits no scheme of 'config_groups'");
  }
  const PackedIntegers matrix = *found;
  int group = matrix.mlx_group(tensors.place());
  std::vector<std::string> inputs{numbers, scale};
  auto optional = [&](const char* part) {
    std::string name = module + part;
    if (!tensors.has(name)) {
      return size_t{0};
    }
    inputs.push_back(name);
    return inputs.size() - 1;
  };
  size_t zeros_at = optional(".weight_zero_point");
  size_t order_at = optional(".weight_g_idx");
  size_t shape_at = optional(".weight_shape");
  auto half = static_cast<float>(1 << (matrix.bits - 1));
  if (zeros_at > 0) {
    const TensorInfo& zeros = tensors.info(inputs[zeros_at]);
    bool fits = zeros.stored == (is_packed ? "I32" : "I8") &&
        (!is_packed ||
         (matrix.out * matrix.bits % 32 == 0 &&
          zeros.shape ==
              std::vector<int64_t>{
                  matrix.out * matrix.bits / 32,
                  matrix.in / matrix.group})) &&
        (is_packed || zeros.shape == scale_info.shape);
    if (!fits) {
      fail_module(tensors, module, "its zero points do not fit");
    }
  }
  std::string place = tensors.place();
  auto compute = [=](std::span<const Weight> in, const LoadDtype& dtype) {
    if (order_at > 0 && !is_in_order(in[order_at].weight, matrix.group)) {
      fail(
          ErrorKind::unsupported,
          place,
          "'{}.weight_g_idx' permutes the inputs (actorder), which no form of "
          "MLX has",
          module);
    }
    if (shape_at > 0) {
      mx::array shape = mx::astype(in[shape_at].weight, mx::int64);
      mx::array wanted(
          {static_cast<int>(matrix.out), static_cast<int>(matrix.in)},
          mx::int64);
      if (!mx::array_equal(shape, wanted).item<bool>()) {
        fail(
            ErrorKind::unsupported,
            place,
            "'{}.weight_shape' says another shape than [{}, {}]",
            module,
            matrix.out,
            matrix.in);
      }
    }
    mx::array words = mx::view(mx::contiguous(in[0].weight, false), mx::uint32);
    if (!is_packed) {
      words = mx::bitwise_xor(words, mx::array(0x80808080u, mx::uint32));
    }
    mx::array zeros(half);
    if (zeros_at > 0 && is_packed) {
      mx::array packed = mx::view(in[zeros_at].weight, mx::uint32);
      zeros = mx::transpose(
          unpack_rows(mx::transpose(packed), matrix.out, matrix.bits));
    } else if (zeros_at > 0) {
      zeros = mx::add(mx::astype(in[zeros_at].weight, mx::float32), zeros);
    }
    mx::array scales = mx::broadcast_to(
        in[1].weight,
        {static_cast<int>(matrix.out),
         static_cast<int>(matrix.in / matrix.group)});
    return make_affine(matrix, group, words, scales, zeros, dtype);
  };
  Derivation derivation = matrix.derivation(
      info.stored + " compressed-tensors",
      tensors.place(),
      compute);
  tensors.derive(inputs, {{module + ".weight", std::move(derivation)}});
}

// Nibbles U8 [..., out, in / 2] with a scale byte for each 16 (E4M3) or 32
// (E8M0) and, for 16, one number for all: divided by it (compressed-tensors) or
// multiplied with it (ModelOpt).
void convert_float4(
    TensorRewrite& tensors,
    const std::string& module,
    const std::string& numbers,
    const std::string& scale,
    const std::string& global,
    bool is_divisor) {
  const TensorInfo& info = tensors.info(numbers);
  const TensorInfo& scale_info = tensors.info(scale);
  bool is_nvfp4 = scale_info.stored == "F8_E4M3";
  bool is_mxfp4 = scale_info.stored == "U8" || scale_info.stored == "F8_E8M0";
  Quantization q{is_nvfp4 ? 16 : 32, 4, is_nvfp4 ? "nvfp4" : "mxfp4"};
  auto shape = info.shape;
  bool fits = (is_nvfp4 || is_mxfp4) && info.stored == "U8" &&
      shape.size() >= 2 && shape.back() <= INT32_MAX / 2;
  if (fits) {
    shape.back() *= 2;
    auto groups = shape;
    groups.back() /= q.group_size;
    fits = shape.back() % 32 == 0 && scale_info.shape == groups;
  }
  bool has_global = tensors.has(global);
  if (fits && has_global) {
    const TensorInfo& one = tensors.info(global);
    fits = is_nvfp4 && one.stored == "F32" && shape.size() == 2 &&
        std::ranges::all_of(one.shape, [](int64_t n) { return n == 1; });
  }
  if (!fits) {
    fail_module(tensors, module, "these do not belong together");
  }
  q.has_global_scale = has_global;
  std::vector<std::string> inputs{numbers, scale};
  if (has_global) {
    inputs.push_back(global);
  }
  auto compute = [=](std::span<const Weight> in, const LoadDtype&) {
    Weight weight{
        mx::view(mx::contiguous(in[0].weight, false), mx::uint32),
        in[1].weight,
        std::nullopt};
    if (has_global) {
      // MLX's is what the largest number of the matrix was: 448 * 6 times.
      mx::array factor = mx::reshape(in[2].weight, mx::Shape{});
      mx::array largest(2688.0f);
      weight.global_scale = is_divisor ? mx::divide(largest, factor)
                                       : mx::multiply(largest, factor);
    }
    return weight;
  };
  tensors.derive(
      inputs,
      {{module + ".weight",
        {.shape = shape,
         .quantization = q,
         .stored = "U8 " + q.mode,
         .compute = compute}}});
}

}  // namespace

void convert_compressed_tensors(
    TensorRewrite& tensors,
    const JsonView& settings) {
  check_format(settings.string("format"), settings);
  if (settings.has("sparsity_config")) {
    std::string sparse =
        settings.object("sparsity_config").string_or("format", "dense");
    if (sparse != "dense") {
      fail(
          ErrorKind::unsupported,
          settings.place(),
          "sparse weights ('{}')",
          sparse);
    }
  }
  auto schemes = read_schemes(settings);
  drop_activation_scales(tensors);
  constexpr std::string_view kScale = ".weight_scale";
  for (const auto& name : tensors.names()) {
    if (name.ends_with(".weight_packed") &&
        !tensors.has(name.substr(0, name.size() - 7) + "_scale")) {
      fail_module(tensors, name.substr(0, name.size() - 14), "no scales");
    }
    if (!name.ends_with(kScale)) {
      continue;
    }
    std::string module = name.substr(0, name.size() - kScale.size());
    std::string packed = module + ".weight_packed";
    std::string weight = module + ".weight";
    if (tensors.has(packed)) {
      if (is_matrix(tensors.info(packed), "I32")) {
        convert_integers(tensors, module, schemes, true);
      } else {
        convert_float4(
            tensors,
            module,
            packed,
            name,
            module + ".weight_global_scale",
            true);
      }
    } else if (
        tensors.has(weight) && tensors.info(weight).stored == "F8_E4M3") {
      std::vector<int64_t> block;
      for (const auto& scheme : schemes) {
        block = scheme.block.empty() ? block : scheme.block;
      }
      convert_fp8_matrix(tensors, weight, name, block);
    } else if (
        tensors.has(weight) && is_matrix(tensors.info(weight), "I8") &&
        tensors.info(weight).shape[1] % 4 == 0) {
      convert_integers(tensors, module, schemes, false);
    } else {
      fail_module(
          tensors,
          module,
          "scales without numbers that they belong to");
    }
  }
}

void convert_modelopt(TensorRewrite& tensors, const JsonView& settings) {
  JsonView inner =
      settings.has("quantization") ? settings.object("quantization") : settings;
  std::string algorithm = inner.string("quant_algo");
  if (algorithm != "NVFP4" && algorithm != "FP8") {
    fail(
        ErrorKind::unsupported,
        settings.place(),
        "modelopt with '{}'; NVFP4 and FP8 can be loaded",
        algorithm);
  }
  drop_activation_scales(tensors);
  constexpr std::string_view kScale = ".weight_scale";
  for (const auto& name : tensors.names()) {
    if (!name.ends_with(kScale)) {
      continue;
    }
    std::string module = name.substr(0, name.size() - kScale.size());
    std::string weight = module + ".weight";
    if (tensors.info(weight).stored == "F8_E4M3") {
      convert_fp8_matrix(tensors, weight, name, {});
    } else {
      convert_float4(
          tensors,
          module,
          weight,
          name,
          module + ".weight_scale_2",
          false);
    }
  }
}

}  // namespace mlxx::hub
