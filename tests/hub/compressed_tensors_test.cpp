// fp8, compressed-tensors and ModelOpt, packed by their own rules, one number
// at a time.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/hub/checkpoint.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/tensor_file.h"

namespace mlxx::hub {
namespace {

double float8(int bits) {
  int exponent = bits >> 3 & 15, fraction = bits & 7;
  double size = exponent == 0 ? std::ldexp(fraction, -9)
                              : std::ldexp(8 + fraction, exponent - 10);
  return bits & 128 ? -size : size;
}

double float4(int bits) {
  constexpr double kSizes[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  return bits & 8 ? -kSizes[bits & 7] : kSizes[bits & 7];
}

float to_bfloat16(double value) {
  return static_cast<float>(mx::bfloat16_t(static_cast<float>(value)));
}

// Every byte but the two that are no number.
std::vector<uint8_t> random_bytes(size_t count, unsigned seed) {
  std::vector<uint8_t> out;
  for (int n : random_numbers(count, 256, seed)) {
    out.push_back(static_cast<uint8_t>((n & 127) == 127 ? n - 1 : n));
  }
  return out;
}

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::vector<float> out;
  for (int n : random_numbers(count, 1000, seed)) {
    out.push_back(0.001f * static_cast<float>(n + 1));
  }
  return out;
}

class Foreign : public ::testing::Test {
 protected:
  std::shared_ptr<const Checkpoint> open(const std::string& quantization) {
    folder_.write(
        "config.json",
        R"({"model_type":"llama","quantization_config":)" + quantization + "}");
    folder_.write("model.safetensors", file_.build());
    return open_checkpoint(folder_.path());
  }
  static const TensorInfo& info(const Checkpoint& model) {
    EXPECT_EQ(model.tensors().size(), 1u);
    EXPECT_EQ(model.tensors()[0].name, "m.weight");
    return model.tensors()[0];
  }
  static mx::array numbers(const Checkpoint& model) {
    const auto& q = info(model).quantization;
    Weight w = model.load("m.weight", {.scales = mx::float32});
    mx::array result = q ? mx::dequantize(
                               w.weight,
                               *w.scales,
                               w.biases,
                               q->group_size,
                               q->bits,
                               q->mode,
                               w.global_scale,
                               mx::float32)
                         : mx::astype(w.weight, mx::float32);
    result.eval();
    return result;
  }
  // Checks all numbers of [out, in].
  template <typename Expected>
  static void expect_numbers(
      const Checkpoint& model,
      int out,
      int in,
      Expected&& expected) {
    mx::array got = numbers(model);
    ASSERT_EQ(got.shape(), (mx::Shape{out, in}));
    for (int o = 0; o < out; ++o) {
      for (int i = 0; i < in; ++i) {
        ASSERT_EQ(got.data<float>()[o * in + i], expected(o, i))
            << o << " " << i;
      }
    }
  }

  TemporaryFolder folder_;
  TensorFile file_;
};

// fp8 -------------------------------------------------------------------------

constexpr auto kBlocks =
    R"({"quant_method":"fp8","weight_block_size":[128,128]})";

TEST_F(Foreign, Float8OfBlocksIsWrittenOut) {
  constexpr int kOut = 130, kIn = 300;
  auto bytes = random_bytes(kOut * kIn, 1);
  auto scales = random_floats(2 * 3, 2);
  file_.add("m.weight", "F8_E4M3", {kOut, kIn}, bytes);
  file_.add("m.weight_scale_inv", "F32", {2, 3}, scales);
  auto model = open(kBlocks);
  EXPECT_EQ(info(*model).stored, "F8_E4M3");
  EXPECT_EQ(info(*model).loads_as, "BF16");
  EXPECT_EQ(model->load("m.weight", {}).weight.dtype(), mx::bfloat16);
  expect_numbers(*model, kOut, kIn, [&](int o, int i) {
    auto scale = static_cast<double>(scales[o / 128 * 3 + i / 128]);
    return to_bfloat16(float8(bytes[o * kIn + i]) * scale);
  });
}

TEST_F(Foreign, Float8OfRowsOrOfAllIsWrittenOut) {
  auto bytes = random_bytes(4 * 32, 1);
  auto scales = random_floats(4, 2);
  for (bool is_row : {true, false}) {
    file_ = {};
    file_.add("m.weight", "F8_E4M3", {4, 32}, bytes);
    if (is_row) {
      file_.add("m.weight_scale", "F32", {4, 1}, scales);
    } else {
      file_.add("m.weight_scale", "F32", {}, std::vector<float>{scales[0]});
      file_.add("m.input_scale", "F32", {}, std::vector<float>{1});
    }
    auto model = open(R"({"quant_method":"fp8"})");
    EXPECT_EQ(model->dropped().size(), is_row ? 0u : 1u);
    expect_numbers(*model, 4, 32, [&](int o, int i) {
      auto scale = static_cast<double>(scales[is_row ? o : 0]);
      return to_bfloat16(float8(bytes[o * 32 + i]) * scale);
    });
  }
}

TEST_F(Foreign, ScalesThatArePowersOfTwoStayPacked) {
  auto bytes = random_bytes(66 * 128, 1);
  std::vector<uint8_t> powers{120, 125, 127, 128, 121, 126};
  file_.add("m.weight", "F8_E4M3", {66, 128}, bytes);
  file_.add("m.weight_scale_inv", "F8_E8M0", {3, 2}, powers);
  auto model = open(R"({"quant_method":"fp8","weight_block_size":[32,64]})");
  EXPECT_EQ(info(*model).quantization->mode, "mxfp8");
  EXPECT_EQ(info(*model).loads_as, "");
  expect_numbers(*model, 66, 128, [&](int o, int i) {
    int power = powers[o / 32 * 2 + i / 64];
    return static_cast<float>(
        std::ldexp(float8(bytes[o * 128 + i]), power - 127));
  });
}

TEST_F(Foreign, Float8NeedsBothParts) {
  file_.add("m.weight", "F8_E4M3", {4, 32}, random_bytes(128, 1));
  EXPECT_ERROR(
      open(kBlocks),
      "bad_file",
      "'m.weight' of F8_E4M3 has no scales");
  file_.add("m.weight_scale_inv", "F32", {2, 1}, random_floats(2, 1));
  EXPECT_ERROR(open(kBlocks), "bad_file", "'m.weight_scale_inv' [2, 1] of F32");
  file_.remove("m.weight");
  EXPECT_ERROR(open(kBlocks), "bad_file", "'m.weight' is missing");
  file_.add("m.weight", "BF16", {4, 32}, std::vector<uint16_t>(128));
  EXPECT_ERROR(open(kBlocks), "bad_file", "of BF16");
  EXPECT_ERROR(
      open(R"({"quant_method":"fp8","weight_block_size":[128]})"),
      "bad_file",
      "must hold two sizes");
}

// compressed-tensors ----------------------------------------------------------

std::string compressed(
    const std::string& format,
    const std::string& weights,
    const std::string& more = "") {
  return fmt::format(
      R"({{"quant_method":"compressed-tensors","format":"{}",{}
          "config_groups":{{"group_0":{{"targets":["Linear"],
          "weights":{}}}}}}})",
      format,
      more,
      weights);
}

// q [out][in] of `bits`, unsigned, in words of 32 bits.
std::vector<int32_t> in_words(const std::vector<int>& q, int bits) {
  std::vector<int32_t> words(q.size() * bits / 32);
  for (size_t i = 0; i < q.size(); ++i) {
    size_t at = i * bits;
    words[at / 32] |=
        static_cast<int32_t>(static_cast<uint32_t>(q[i]) << at % 32);
  }
  return words;
}

TEST_F(Foreign, PackedIntegersAreReadExactly) {
  constexpr int kOut = 16, kIn = 256;
  for (int bits : {4, 8}) {
    for (int group : {32, 128, -1}) {
      for (bool is_symmetric : {true, false}) {
        int groups = group < 0 ? 1 : kIn / group;
        auto q = random_numbers(kOut * kIn, 1 << bits, 1);
        auto scales = random_halves(kOut * groups, 2);
        auto zeros = random_numbers(kOut * groups, 1 << bits, 3);
        file_ = {};
        file_.add(
            "m.weight_packed",
            "I32",
            {kOut, kIn * bits / 32},
            in_words(q, bits));
        file_.add("m.weight_scale", "F16", {kOut, groups}, scales);
        file_
            .add("m.weight_shape", "I64", {2}, std::vector<int64_t>{kOut, kIn});
        if (!is_symmetric) {
          // Packed along the outputs.
          std::vector<int32_t> words(kOut * bits / 32 * groups);
          for (int g = 0; g < groups; ++g) {
            std::vector<int> column;
            for (int o = 0; o < kOut; ++o) {
              column.push_back(zeros[o * groups + g]);
            }
            auto packed = in_words(column, bits);
            for (size_t w = 0; w < packed.size(); ++w) {
              words[w * groups + g] = packed[w];
            }
          }
          file_.add(
              "m.weight_zero_point",
              "I32",
              {kOut * bits / 32, groups},
              words);
        }
        auto model = open(compressed(
            "pack-quantized",
            fmt::format(
                R"({{"num_bits":{},"type":"int","group_size":{},
                    "symmetric":{}}})",
                bits,
                group < 0 ? "null" : std::to_string(group),
                is_symmetric)));
        expect_numbers(*model, kOut, kIn, [&](int o, int i) {
          int g = group < 0 ? 0 : i / group;
          int zero = is_symmetric ? 1 << (bits - 1) : zeros[o * groups + g];
          return static_cast<float>(
              half_value(scales[o * groups + g]) * (q[o * kIn + i] - zero));
        });
      }
    }
  }
}

TEST_F(Foreign, BytesWithAScaleForEachRowAreReadExactly) {
  constexpr int kOut = 4, kIn = 96;
  std::vector<int8_t> q;
  for (int n : random_numbers(kOut * kIn, 256, 1)) {
    q.push_back(static_cast<int8_t>(n - 128));
  }
  auto scales = random_halves(kOut, 2);
  file_.add("m.weight", "I8", {kOut, kIn}, q);
  file_.add("m.weight_scale", "F16", {kOut, 1}, scales);
  auto model = open(compressed(
      "int-quantized",
      R"({"num_bits":8,"type":"int","strategy":"channel"})"));
  EXPECT_EQ(info(*model).quantization->group_size, 32);
  expect_numbers(*model, kOut, kIn, [&](int o, int i) {
    return static_cast<float>(half_value(scales[o]) * q[o * kIn + i]);
  });
}

TEST_F(Foreign, Float8OfCompressedTensorsIsNotTakenForNibbles) {
  auto bytes = random_bytes(4 * 64, 1);
  auto scales = random_floats(4, 2);
  file_.add("m.weight", "F8_E4M3", {4, 64}, bytes);
  auto config =
      compressed("float-quantized", R"({"num_bits":8,"type":"float"})");
  EXPECT_ERROR(open(config), "bad_file", "'m.weight' of F8_E4M3 has no scales");
  file_.add("m.weight_scale", "F32", {4, 1}, scales);
  expect_numbers(*open(config), 4, 64, [&](int o, int i) {
    return to_bfloat16(
        float8(bytes[o * 64 + i]) * static_cast<double>(scales[o]));
  });
}

TEST_F(Foreign, FourBitFloatsStayPacked) {
  auto nibbles = random_numbers(2 * 64, 16, 1);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < nibbles.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(nibbles[i] | nibbles[i + 1] << 4));
  }
  // Without a sign.
  std::vector<uint8_t> scales;
  for (uint8_t byte : random_bytes(2 * 4, 2)) {
    scales.push_back(byte & 127);
  }
  file_.add("m.weight_packed", "U8", {2, 32}, bytes);
  file_.add("m.weight_scale", "F8_E4M3", {2, 4}, scales);
  file_.add("m.weight_global_scale", "F32", {1}, std::vector<float>{64});
  file_.add("m.input_global_scale", "F32", {1}, std::vector<float>{3});
  auto model = open(compressed(
      "nvfp4-pack-quantized",
      R"({"num_bits":4,"type":"float","group_size":16})"));
  EXPECT_TRUE(info(*model).quantization->has_global_scale);
  mx::array got = numbers(*model);
  for (int o = 0; o < 2; ++o) {
    for (int i = 0; i < 64; ++i) {
      double exact =
          float4(nibbles[o * 64 + i]) * float8(scales[o * 4 + i / 16]) / 64;
      // 2688 / 64 / 2688 is rounded twice on the way.
      EXPECT_NEAR(
          static_cast<double>(got.data<float>()[o * 64 + i]),
          exact,
          std::abs(exact) * 3e-7);
    }
  }

  // ModelOpt's names, where the number for all is a factor.
  file_ = {};
  file_.add("m.weight", "U8", {2, 32}, bytes);
  file_.add("m.weight_scale", "F8_E4M3", {2, 4}, scales);
  file_.add("m.weight_scale_2", "F32", {}, std::vector<float>{1.0f / 64});
  mx::array same =
      numbers(*open(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})"));
  EXPECT_TRUE(mx::array_equal(got, same).item<bool>());

  std::vector<uint8_t> powers{126, 127, 130, 120};
  file_ = {};
  file_.add("m.weight_packed", "U8", {2, 32}, bytes);
  file_.add("m.weight_scale", "U8", {2, 2}, powers);
  expect_numbers(
      *open(compressed(
          "mxfp4-pack-quantized",
          R"({"num_bits":4,"type":"float","group_size":32})")),
      2,
      64,
      [&](int o, int i) {
        return static_cast<float>(std::ldexp(
            float4(nibbles[o * 64 + i]),
            powers[o * 2 + i / 32] - 127));
      });
}

TEST_F(Foreign, ContradictionsOfCompressedTensorsAreNamed) {
  auto config = compressed(
      "pack-quantized",
      R"({"num_bits":4,"type":"int","group_size":32})");
  auto write = [&] {
    file_ = {};
    file_.add("m.weight_packed", "I32", {8, 8}, std::vector<int32_t>(64));
    file_.add("m.weight_scale", "F16", {8, 2}, random_halves(16, 1));
  };
  write();
  EXPECT_NO_THROW(open(config));
  file_.reshape("m.weight_scale", {16, 1});
  EXPECT_ERROR(open(config), "bad_file", "fits no scheme of 'config_groups'");
  write();
  file_.remove("m.weight_scale");
  EXPECT_ERROR(open(config), "bad_file", "'m' with");
  write();
  file_.remove("m.weight_packed");
  EXPECT_ERROR(open(config), "bad_file", "scales without numbers");
  write();
  file_.add("m.weight_zero_point", "I32", {2, 2}, std::vector<int32_t>(4));
  EXPECT_ERROR(open(config), "bad_file", "its zero points do not fit");
  write();
  file_.add("m.weight_shape", "I64", {2}, std::vector<int64_t>{8, 63});
  EXPECT_ERROR(
      open(config)->load("m.weight", {}),
      "unsupported",
      "'m.weight_shape'");
  write();
  std::vector<int32_t> order(64, 1);
  file_.add("m.weight_g_idx", "I32", {64}, order);
  EXPECT_ERROR(open(config)->load("m.weight", {}), "unsupported", "(actorder)");
  write();
  std::fill(order.begin(), order.end(), -1);
  file_.add("m.weight_g_idx", "I32", {64}, order);
  EXPECT_NO_THROW(open(config)->load("m.weight", {}));
  EXPECT_ERROR(
      open(compressed("marlin-24", "{\"num_bits\":4}")),
      "unsupported",
      "the format 'marlin-24'");
  EXPECT_ERROR(
      open(compressed(
          "pack-quantized",
          R"({"num_bits":4})",
          R"("sparsity_config":{"format":"sparse-24-bitmask"},)")),
      "unsupported",
      "sparse weights ('sparse-24-bitmask')");
  EXPECT_ERROR(
      open(R"({"quant_method":"modelopt","quant_algo":"W4A8"})"),
      "unsupported",
      "modelopt with 'W4A8'");
}

TEST_F(Foreign, OtherMethodsAreNamed) {
  file_.add("a", "F32", {1}, std::vector<float>{1});
  for (const char* method : {"bitsandbytes", "bitnet", "hqq"}) {
    EXPECT_ERROR(
        open(fmt::format(R"({{"quant_method":"{}"}})", method)),
        "unsupported",
        fmt::format("weights quantized with '{}'; known are", method));
  }
}

TEST_F(Foreign, ModelOptMayHaveAFileOfItsOwn) {
  file_.add("m.weight", "F8_E4M3", {2, 32}, random_bytes(64, 1));
  file_.add("m.weight_scale", "F32", {}, std::vector<float>{0.5f});
  folder_.write("config.json", R"({"model_type":"llama"})");
  folder_.write("model.safetensors", file_.build());
  EXPECT_ERROR(
      open_checkpoint(folder_.path()),
      "unsupported",
      "stored as F8_E4M3");
  folder_.write(
      "hf_quant_config.json",
      R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"FP8"}})");
  EXPECT_EQ(info(*open_checkpoint(folder_.path())).loads_as, "BF16");
}

}  // namespace
}  // namespace mlxx::hub
