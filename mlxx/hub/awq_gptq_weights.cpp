// Weights of AutoAWQ and of GPTQ (AutoGPTQ, GPTQModel): "module.qweight",
// "module.qzeros", "module.scales" and GPTQ's "module.g_idx".
#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/core/host_array.h"
#include "mlxx/hub/foreign_quantization.h"
#include "mlxx/hub/packed_integers.h"

namespace mlxx::hub {

namespace {

constexpr std::string_view kNumbers = ".qweight";

// AWQ: output 8 j + k of word j is nibble kAwqOrder[k].
constexpr int kAwqOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};

std::vector<std::string> modules(const TensorRewrite& tensors) {
  std::vector<std::string> found;
  for (const auto& name : tensors.names()) {
    if (name.ends_with(kNumbers)) {
      found.push_back(name.substr(0, name.size() - kNumbers.size()));
    }
  }
  if (found.empty()) {
    fail(
        ErrorKind::bad_file,
        tensors.place(),
        "config.json speaks of quantized weights, no tensor '*.qweight' is "
        "there");
  }
  return found;
}

bool is_floating(const std::string& stored) {
  return stored == "F16" || stored == "BF16" || stored == "F32";
}

[[noreturn]] void fail_parts(
    const TensorRewrite& tensors,
    const std::string& module,
    const JsonView& settings) {
  std::vector<std::string> parts;
  for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"}) {
    if (tensors.has(module + part)) {
      const TensorInfo& info = tensors.info(module + part);
      parts.push_back(fmt::format(
          "{} {} [{}]",
          part + 1,
          info.stored,
          fmt::join(info.shape, ", ")));
    }
  }
  fail(
      ErrorKind::bad_file,
      tensors.place(),
      "'{}' has {}, which do not fit {}",
      module,
      fmt::join(parts, ", "),
      settings.json().dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Checks dtypes and shapes of the parts. `along_out`: numbers are packed along
// the outputs [in, out * bits / 32] (AWQ), not the inputs [in * bits / 32,
// out].
PackedIntegers read_matrix(
    const TensorRewrite& tensors,
    const std::string& module,
    const JsonView& settings,
    int bits,
    bool along_out) {
  const TensorInfo& numbers = tensors.info(module + ".qweight");
  const TensorInfo& scales = tensors.info(module + ".scales");
  bool fits = numbers.stored == "I32" && numbers.shape.size() == 2 &&
      is_floating(scales.stored) && scales.shape.size() == 2;
  if (!fits) {
    fail_parts(tensors, module, settings);
  }
  auto unpacked = [&](int64_t words) {
    __int128 all = static_cast<__int128>(words) * 32;
    return all % bits == 0 && all / bits <= INT32_MAX
        ? static_cast<int64_t>(all / bits)
        : 0;
  };
  PackedIntegers matrix{
      .module = module,
      .out = along_out ? unpacked(numbers.shape[1]) : numbers.shape[1],
      .in = along_out ? numbers.shape[0] : unpacked(numbers.shape[0]),
      .group = settings.integer_or("group_size", 128, -1, INT32_MAX),
      .bits = bits};
  if (matrix.group <= 0) {
    matrix.group = matrix.in;
  }
  int64_t groups = scales.shape[0];
  fits = matrix.in > 0 && matrix.out > 0 && scales.shape[1] == matrix.out &&
      groups > 0 && matrix.in % matrix.group == 0 &&
      groups == matrix.in / matrix.group && matrix.out * bits % 32 == 0 &&
      matrix.in * bits % 32 == 0;
  if (fits && tensors.has(module + ".qzeros")) {
    const TensorInfo& zeros = tensors.info(module + ".qzeros");
    fits = zeros.stored == "I32" &&
        zeros.shape == std::vector<int64_t>{groups, matrix.out * bits / 32};
  }
  if (fits && tensors.has(module + ".g_idx")) {
    const TensorInfo& order = tensors.info(module + ".g_idx");
    fits =
        order.stored == "I32" && order.shape == std::vector<int64_t>{matrix.in};
  }
  if (!fits) {
    fail_parts(tensors, module, settings);
  }
  return matrix;
}

// [in, out / 8] with eight outputs a word -> [out, in / 8] with eight inputs.
mx::array turn_awq(const mx::array& packed) {
  mx::array source = mx::contiguous(packed, false);
  source.eval();
  int in = source.shape(0), words = source.shape(1);
  HostArray out = make_host_array({words * 8, in / 8}, mx::uint32);
  const auto* from = source.data<uint32_t>();
  auto* to = reinterpret_cast<uint32_t*>(out.data);
  for (int block = 0; block < in / 8; ++block) {
    for (int j = 0; j < words; ++j) {
      for (int k = 0; k < 8; ++k) {
        uint32_t word = 0;
        for (int r = 0; r < 8; ++r) {
          uint32_t q = from[static_cast<size_t>(block * 8 + r) * words + j];
          word |= (q >> 4 * kAwqOrder[k] & 15) << 4 * r;
        }
        to[static_cast<size_t>(j * 8 + k) * (in / 8) + block] = word;
      }
    }
  }
  return out.array;
}

// [groups, out / 8] -> float32 [out, groups].
mx::array awq_zeros(const mx::array& packed) {
  mx::array shifts = mx::multiply(
      mx::array(kAwqOrder, {8}, mx::uint32),
      mx::array(4u, mx::uint32));
  mx::array words = mx::expand_dims(mx::view(packed, mx::uint32), -1);
  mx::array zeros = mx::bitwise_and(
      mx::right_shift(words, shifts),
      mx::array(15u, mx::uint32));
  zeros = mx::flatten(zeros, 1, 2);
  return mx::transpose(mx::astype(zeros, mx::float32));
}

}  // namespace

void convert_awq(TensorRewrite& tensors, const JsonView& settings) {
  int64_t bits = settings.integer_or("bits", 4, 1, 32);
  std::string version = settings.string_or("version", "gemm");
  std::ranges::transform(version, version.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  if (bits != 4 || version != "gemm") {
    fail(
        ErrorKind::unsupported,
        settings.place(),
        "awq with {} bits and version '{}'; 4 bits and 'gemm' can be loaded",
        bits,
        version);
  }
  for (const auto& module : modules(tensors)) {
    PackedIntegers matrix = read_matrix(tensors, module, settings, 4, true);
    int group = matrix.mlx_group(tensors.place());
    std::vector<std::string> inputs{module + ".qweight", module + ".scales"};
    bool has_zeros = tensors.has(module + ".qzeros");
    if (has_zeros) {
      inputs.push_back(module + ".qzeros");
    }
    auto compute = [=](std::span<const Weight> in, const LoadDtype& dtype) {
      return make_affine(
          matrix,
          group,
          turn_awq(mx::view(in[0].weight, mx::uint32)),
          mx::transpose(in[1].weight),
          has_zeros ? awq_zeros(in[2].weight) : mx::array(8.0f),
          dtype);
    };
    tensors.derive(
        inputs,
        {{module + ".weight",
          matrix.derivation("I32 awq", tensors.place(), compute)}});
  }
}

void convert_gptq(TensorRewrite& tensors, const JsonView& settings) {
  auto bits = static_cast<int>(settings.integer_or("bits", 4, 1, 32));
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    fail(
        ErrorKind::unsupported,
        settings.place(),
        "gptq with {} bits; 2, 3, 4 and 8 can be loaded",
        bits);
  }
  // Version 1 keeps zero points less one.
  std::string version = settings.string_or("checkpoint_format", "gptq");
  if (version != "gptq" && version != "gptq_v2") {
    fail(
        ErrorKind::unsupported,
        settings.place(),
        "gptq in the format '{}'; 'gptq' and 'gptq_v2' can be loaded",
        version);
  }
  float offset = version == "gptq" ? 1.0f : 0.0f;
  std::string place = tensors.place();
  for (const auto& module : modules(tensors)) {
    PackedIntegers matrix = read_matrix(tensors, module, settings, bits, false);
    int group = matrix.mlx_group(place);
    std::vector<std::string> inputs{module + ".qweight", module + ".scales"};
    size_t zeros_at = 0, order_at = 0;
    if (tensors.has(module + ".qzeros")) {
      zeros_at = inputs.size();
      inputs.push_back(module + ".qzeros");
    }
    if (tensors.has(module + ".g_idx")) {
      order_at = inputs.size();
      inputs.push_back(module + ".g_idx");
    }
    auto compute = [=](std::span<const Weight> in, const LoadDtype& dtype) {
      if (order_at > 0 && !is_in_order(in[order_at].weight, matrix.group)) {
        fail(
            ErrorKind::unsupported,
            place,
            "'{}.g_idx' permutes the inputs (desc_act), which no form of MLX "
            "has",
            module);
      }
      mx::array zeros(static_cast<float>(1 << (bits - 1)));
      if (zeros_at > 0) {
        zeros = unpack_rows(
            mx::view(in[zeros_at].weight, mx::uint32),
            matrix.out,
            bits);
        zeros = mx::transpose(mx::add(zeros, mx::array(offset)));
      }
      return make_affine(
          matrix,
          group,
          mx::transpose(mx::view(in[0].weight, mx::uint32)),
          mx::transpose(in[1].weight),
          zeros,
          dtype);
    };
    tensors.derive(
        inputs,
        {{module + ".weight", matrix.derivation("I32 gptq", place, compute)}});
  }
}

}  // namespace mlxx::hub
