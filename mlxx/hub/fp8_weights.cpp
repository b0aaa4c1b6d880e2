#include "mlxx/hub/fp8_weights.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/foreign_quantization.h"

namespace mlxx::hub {

namespace {

constexpr std::string_view kFloat8 = "F8_E4M3";
constexpr std::string_view kPowers = "F8_E8M0";

// What one scale is for.
enum class Reach { all, row, block };

int64_t blocks_of(int64_t length, int64_t block) {
  return (length + block - 1) / block;
}

struct Scales {
  Reach reach = Reach::all;
  std::vector<int64_t> block;
};

[[noreturn]] void fail_scale(
    const std::string& place,
    const TensorInfo& weight,
    const TensorInfo& scale) {
  fail(
      ErrorKind::bad_file,
      place,
      "tensor '{}' [{}] of {} does not fit '{}' [{}] of {}",
      scale.name,
      fmt::join(scale.shape, ", "),
      scale.stored,
      weight.name,
      fmt::join(weight.shape, ", "),
      weight.stored);
}

Scales read_scales(
    const std::string& place,
    const TensorInfo& weight,
    const TensorInfo& scale,
    const std::vector<int64_t>& block) {
  bool is_number = scale.stored == "F32" || scale.stored == "BF16" ||
      scale.stored == "F16" || scale.stored == kPowers;
  auto rank = weight.shape.size();
  if (!is_number || rank < 2) {
    fail_scale(place, weight, scale);
  }
  int64_t out = weight.shape[rank - 2], in = weight.shape[rank - 1];
  if (std::ranges::all_of(scale.shape, [](int64_t n) { return n == 1; })) {
    return {Reach::all, {}};
  }
  auto with = [&](std::initializer_list<int64_t> last) {
    std::vector<int64_t> shape(weight.shape.begin(), weight.shape.end() - 2);
    shape.insert(shape.end(), last);
    return shape;
  };
  if (!block.empty() &&
      scale.shape ==
          with({blocks_of(out, block[0]), blocks_of(in, block[1])})) {
    // A block that is larger than the matrix is not written out.
    return {Reach::block, {std::min(block[0], out), std::min(block[1], in)}};
  }
  if (scale.shape == with({out, 1}) || scale.shape == with({out})) {
    return {Reach::row, {}};
  }
  fail_scale(place, weight, scale);
}

// [..., out, in], or [..., out, 1] that broadcasts.
mx::array
spread(const mx::array& scale, const Scales& scales, const mx::Shape& weight) {
  auto rank = static_cast<int>(weight.size());
  if (scales.reach == Reach::all) {
    return mx::reshape(scale, mx::Shape(weight.size(), 1));
  }
  if (scales.reach == Reach::row) {
    mx::Shape shape(weight.begin(), weight.end() - 1);
    shape.push_back(1);
    return mx::reshape(scale, shape);
  }
  mx::array all =
      mx::repeat(scale, static_cast<int>(scales.block[0]), rank - 2);
  all = mx::repeat(all, static_cast<int>(scales.block[1]), rank - 1);
  return mx::slice(all, mx::Shape(weight.size(), 0), weight);
}

// A scale for each 32 columns, as bytes of exponents.
Weight pack_mxfp8(
    const mx::array& bytes,
    const mx::array& scale,
    const Scales& scales) {
  Scales groups = scales;
  if (groups.reach == Reach::block) {
    groups.block[1] /= 32;
  }
  mx::Shape shape = bytes.shape();
  shape.back() /= 32;
  mx::array spread_scales =
      mx::broadcast_to(spread(scale, groups, shape), shape);
  return {
      mx::view(mx::contiguous(bytes, false), mx::uint32),
      spread_scales,
      std::nullopt};
}

// 2^(e - 127), as the format of those bytes says.
mx::array powers(const mx::array& bytes) {
  mx::array exponents =
      mx::subtract(mx::astype(bytes, mx::float32), mx::array(127.0f));
  return mx::power(mx::array(2.0f), exponents);
}

}  // namespace

void convert_fp8_matrix(
    TensorRewrite& tensors,
    const std::string& weight,
    const std::string& scale,
    const std::vector<int64_t>& block) {
  const TensorInfo& info = tensors.info(weight);
  const TensorInfo& scale_info = tensors.info(scale);
  if (info.stored != kFloat8) {
    fail_scale(tensors.place(), info, scale_info);
  }
  Scales scales = read_scales(tensors.place(), info, scale_info, block);
  bool are_powers = scale_info.stored == kPowers;
  bool stays_packed = are_powers && info.shape.back() % 32 == 0 &&
      (scales.reach != Reach::block || scales.block[1] % 32 == 0);
  Derivation derivation{
      .shape = info.shape,
      .quantization = std::nullopt,
      .stored = info.stored,
      .compute =
          [=](std::span<const Weight> in, const LoadDtype&) {
            const mx::array& bytes = in[0].weight;
            if (stays_packed) {
              return pack_mxfp8(bytes, in[1].weight, scales);
            }
            mx::array factor = are_powers
                ? powers(in[1].weight)
                : mx::astype(in[1].weight, mx::float32);
            mx::array numbers = mx::multiply(
                mx::from_fp8(bytes, mx::float32),
                spread(factor, scales, bytes.shape()));
            return Weight{
                mx::astype(numbers, mx::bfloat16),
                std::nullopt,
                std::nullopt};
          },
      .loads_as = stays_packed ? "" : "BF16"};
  if (stays_packed) {
    derivation.quantization = Quantization{32, 8, "mxfp8"};
  }
  tensors.derive({weight, scale}, {{weight, std::move(derivation)}});
}

void drop_activation_scales(TensorRewrite& tensors) {
  constexpr std::string_view kNames[] = {
      ".input_scale",
      ".input_global_scale",
      ".activation_scale",
      ".output_scale",
      ".k_scale",
      ".v_scale",
      ".q_scale",
      ".prob_scale",
      "_activation_scale"};
  tensors.drop_each(
      [&](std::string_view name) {
        return std::ranges::any_of(kNames, [&](auto end) {
          return name.ends_with(end);
        });
      },
      "scale of activations, which are not quantized");
}

void convert_fp8(TensorRewrite& tensors, const JsonView& settings) {
  std::vector<int64_t> block;
  for (double size : settings.numbers_or_empty("weight_block_size")) {
    if (size < 1 || size > 1 << 20 || size != static_cast<int64_t>(size)) {
      settings.fail_at("weight_block_size", "must hold two sizes");
    }
    block.push_back(static_cast<int64_t>(size));
  }
  if (!block.empty() && block.size() != 2) {
    settings.fail_at("weight_block_size", "must hold two sizes");
  }
  drop_activation_scales(tensors);
  for (const auto& name : tensors.names()) {
    for (std::string_view suffix : {"_scale_inv", "_scale"}) {
      if (!name.ends_with(suffix)) {
        continue;
      }
      std::string weight = name.substr(0, name.size() - suffix.size());
      bool is_float8 =
          tensors.has(weight) && tensors.info(weight).stored == kFloat8;
      if (is_float8 || weight.ends_with(".weight")) {
        convert_fp8_matrix(tensors, weight, name, block);
      }
    }
  }
}

}  // namespace mlxx::hub
