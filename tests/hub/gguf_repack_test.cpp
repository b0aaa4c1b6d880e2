#include "mlxx/hub/gguf_repack.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx::hub {
namespace {

float half(const std::string& bytes, size_t at) {
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + at, sizeof(bits));
  int exponent = bits >> 10 & 31;
  int fraction = bits & 1023;
  double magnitude = exponent == 0 ? std::ldexp(fraction, -24)
                                   : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}

// The format's own formulas, one number at a time.
std::vector<float> dequantize(const std::string& data, uint32_t type) {
  std::vector<float> out;
  size_t bytes = type == kGgufQ4_0 ? 18 : type == kGgufQ4_1 ? 20 : 34;
  for (size_t at = 0; at < data.size(); at += bytes) {
    float d = half(data, at);
    for (size_t j = 0; j < 32; ++j) {
      if (type == kGgufQ8_0) {
        out.push_back(d * static_cast<int8_t>(data[at + 2 + j]));
        continue;
      }
      size_t header = type == kGgufQ4_1 ? 4 : 2;
      auto byte = static_cast<uint8_t>(data[at + header + j % 16]);
      int q = j < 16 ? byte & 15 : byte >> 4;
      out.push_back(
          type == kGgufQ4_0 ? d * static_cast<float>(q - 8)
                            : d * static_cast<float>(q) + half(data, at + 2));
    }
  }
  return out;
}

class Repack : public ::testing::Test {
 protected:
  Weight repack(
      uint32_t type,
      uint64_t rows,
      uint64_t columns,
      const std::string& data,
      mx::Dtype scales = mx::float32,
      const RowOrder& order = {}) {
    GgufBuilder b;
    b.tensor(
        "t",
        rows == 0 ? std::vector<uint64_t>{columns}
                  : std::vector<uint64_t>{columns, rows},
        type,
        data);
    GgufFile file(folder_.write("t.gguf", b.build()));
    return repack_gguf(file.file(), file.tensors()[0], order, scales, pool_);
  }

  static std::vector<float> values(const Weight& w, int bits) {
    mx::array dense = mx::dequantize(
        w.weight,
        *w.scales,
        w.biases,
        32,
        bits,
        "affine",
        std::nullopt,
        mx::float32);
    dense.eval();
    return {dense.data<float>(), dense.data<float>() + dense.size()};
  }

  TemporaryFolder folder_;
  ThreadPool pool_{2};
};

struct TypeCase {
  uint32_t id;
  size_t bytes;
  size_t halves;
  int bits;
};
constexpr TypeCase kCases[] = {
    {kGgufQ4_0, 18, 1, 4},
    {kGgufQ4_1, 20, 2, 4},
    {kGgufQ8_0, 34, 1, 8}};

TEST_F(Repack, OneBlockWithKnownNumbers) {
  // d = 0.5, m = -3; element j is j mod 16 in the low half of byte j, and
  // 15 - j in the high half for element j + 16.
  std::string nibbles;
  for (int j = 0; j < 16; ++j) {
    nibbles += static_cast<char>(j | (15 - j) << 4);
  }
  auto half_of = [](uint16_t bits) { return GgufBuilder::raw(bits); };
  Weight w =
      repack(kGgufQ4_1, 1, 32, half_of(0x3800) + half_of(0xc200) + nibbles);
  EXPECT_EQ(w.weight.shape(), (mx::Shape{1, 4}));
  EXPECT_EQ(w.weight.dtype(), mx::uint32);
  EXPECT_EQ(w.weight.data<uint32_t>()[0], 0x76543210u);
  EXPECT_EQ(w.weight.data<uint32_t>()[1], 0xfedcba98u);
  EXPECT_EQ(w.weight.data<uint32_t>()[2], 0x89abcdefu);
  EXPECT_EQ(w.scales->data<float>()[0], 0.5f);
  EXPECT_EQ(w.biases->data<float>()[0], -3.0f);
  auto got = values(w, 4);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(got[j], 0.5f * j - 3);
    EXPECT_EQ(got[16 + j], 0.5f * (15 - j) - 3);
  }

  w = repack(kGgufQ4_0, 1, 32, half_of(0x3800) + nibbles);
  EXPECT_EQ(w.biases->data<float>()[0], -4.0f);
  EXPECT_EQ(values(w, 4)[3], 0.5f * (3 - 8));

  std::string bytes;
  for (int j = 0; j < 32; ++j) {
    bytes += static_cast<char>(j * 8 - 128);
  }
  w = repack(kGgufQ8_0, 1, 32, half_of(0x3800) + bytes);
  EXPECT_EQ(w.weight.shape(), (mx::Shape{1, 8}));
  EXPECT_EQ(w.weight.data<uint32_t>()[0], 0x18100800u);
  EXPECT_EQ(w.biases->data<float>()[0], -64.0f);
  EXPECT_EQ(values(w, 8)[1], 0.5f * -120);
}

TEST_F(Repack, EveryElementEqualsTheFormulaOfTheFormat) {
  for (const auto& type : kCases) {
    std::string data = random_blocks(7 * 3, type.bytes, type.halves, type.id);
    Weight w = repack(type.id, 7, 96, data);
    EXPECT_EQ(w.scales->shape(), (mx::Shape{7, 3}));
    EXPECT_EQ(values(w, type.bits), dequantize(data, type.id)) << type.id;
  }
}

TEST_F(Repack, LargeTensorsAreSplitOverThreadsWithTheSameResult) {
  for (const auto& type : kCases) {
    std::string data =
        random_blocks(2048 * 64, type.bytes, type.halves, type.id);
    Weight w = repack(type.id, 2048, 2048, data);
    EXPECT_EQ(values(w, type.bits), dequantize(data, type.id)) << type.id;
  }
}

TEST_F(Repack, HalfPrecisionScalesKeepTheFilesBits) {
  for (const auto& type : kCases) {
    std::string data = random_blocks(4, type.bytes, type.halves, type.id);
    Weight w = repack(type.id, 2, 64, data, mx::float16);
    ASSERT_EQ(w.scales->dtype(), mx::float16);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(
          std::memcmp(
              w.scales->data<char>() + 2 * i,
              data.data() + i * type.bytes,
              2),
          0);
    }
    float d = half(data, 0);
    float bias = static_cast<float>(w.biases->data<mx::float16_t>()[0]);
    EXPECT_EQ(
        bias,
        type.id == kGgufQ4_0       ? -8 * d
            : type.id == kGgufQ4_1 ? half(data, 2)
                                   : -128 * d);
    w = repack(type.id, 2, 64, data, mx::bfloat16);
    EXPECT_EQ(w.scales->dtype(), mx::bfloat16);
    EXPECT_EQ(w.biases->dtype(), mx::bfloat16);
  }
}

TEST_F(Repack, ScalesOfEveryHalfAreConvertedExactly) {
  // All 65,536 halves as scales of Q4_0 blocks, in 128 rows of 512 blocks.
  std::string data;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    data +=
        GgufBuilder::raw(static_cast<uint16_t>(bits)) + std::string(16, '\0');
  }
  Weight w = repack(kGgufQ4_0, 128, 16384, data);
  const float* scales = w.scales->data<float>();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    mx::float16_t half;
    auto stored = static_cast<uint16_t>(bits);
    std::memcpy(&half, &stored, sizeof(half));
    float expected = static_cast<float>(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(scales[bits])) << bits;
    } else {
      EXPECT_EQ(scales[bits], expected) << bits;
      EXPECT_EQ(std::signbit(scales[bits]), std::signbit(expected)) << bits;
    }
  }
}

TEST_F(Repack, BiasesThatOverflowFloat16AreRefusedAndFitOtherwise) {
  // d = 512: -128 d = -65536 is above float16's largest number.
  std::string data = GgufBuilder::raw<uint16_t>(0x6000) + std::string(32, 1);
  EXPECT_ERROR(
      repack(kGgufQ8_0, 1, 32, data, mx::float16),
      "unsupported",
      "'t' has scales that are too large for float16");
  EXPECT_EQ(
      repack(kGgufQ8_0, 1, 32, data, mx::bfloat16)
          .biases->data<mx::bfloat16_t>()[0],
      mx::bfloat16_t(-65536.0f));
  EXPECT_EQ(repack(kGgufQ8_0, 1, 32, data).biases->data<float>()[0], -65536.0f);
}

TEST_F(Repack, RowsOfHeadsAreBroughtInOrder) {
  // The converter's permutation of two heads of 6 rows.
  constexpr int kHeads = 2, kRows = 6;
  std::vector<float> original, stored(kHeads * kRows * 2);
  for (int i = 0; i < kHeads * kRows * 2; ++i) {
    original.push_back(static_cast<float>(i));
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int part = 0; part < 2; ++part) {
      for (int i = 0; i < kRows / 2; ++i) {
        for (int c = 0; c < 2; ++c) {
          stored[(h * kRows + 2 * i + part) * 2 + c] =
              original[(h * kRows + part * kRows / 2 + i) * 2 + c];
        }
      }
    }
  }
  Weight w = repack(
      kGgufF32,
      kHeads * kRows,
      2,
      floats(stored),
      mx::float32,
      {.head_rows = kRows});
  EXPECT_EQ(
      std::vector<float>(
          w.weight.data<float>(),
          w.weight.data<float>() + original.size()),
      original);
  // A bias is permuted likewise, number by number.
  Weight bias = repack(
      kGgufF32,
      0,
      6,
      floats({0, 3, 1, 4, 2, 5}),
      mx::float32,
      {.head_rows = 6});
  EXPECT_EQ(bias.weight.shape(), (mx::Shape{6}));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(bias.weight.data<float>()[i], static_cast<float>(i));
  }
}

TEST_F(Repack, OrderingQuantizedRowsIsExact) {
  for (const auto& type : kCases) {
    std::string data = random_blocks(512 * 8, type.bytes, type.halves, type.id);
    RowOrder order{.head_rows = 64};
    Weight w = repack(type.id, 512, 256, data, mx::float32, order);
    auto plain = dequantize(data, type.id);
    auto got = values(w, type.bits);
    for (int64_t row = 0; row < 512; ++row) {
      for (int64_t c = 0; c < 256; ++c) {
        ASSERT_EQ(got[row * 256 + c], plain[order.source_row(row) * 256 + c]);
      }
    }
  }
}

TEST_F(Repack, PlainNumbersStayWhatTheyAre) {
  Weight f32 = repack(kGgufF32, 0, 3, floats({1.5f, -2, 0}));
  EXPECT_EQ(f32.weight.dtype(), mx::float32);
  EXPECT_FALSE(f32.scales);
  EXPECT_EQ(f32.weight.data<float>()[1], -2.0f);
  Weight f16 = repack(kGgufF16, 1, 2, std::string("\x00\x3c\x00\xc0", 4));
  EXPECT_EQ(f16.weight.dtype(), mx::float16);
  EXPECT_EQ(static_cast<float>(f16.weight.data<mx::float16_t>()[1]), -2.0f);
  Weight bf16 = repack(kGgufBF16, 1, 2, std::string("\x80\x3f\x00\xc0", 4));
  EXPECT_EQ(bf16.weight.dtype(), mx::bfloat16);
  EXPECT_EQ(static_cast<float>(bf16.weight.data<mx::bfloat16_t>()[0]), 1.0f);
}

TEST_F(Repack, OtherTypesAreNamed) {
  struct Other {
    uint32_t id;
    const char* name;
    uint64_t columns;
    size_t bytes;
  };
  for (const Other& other :
       {Other{9, "Q8_1", 32, 36},
        Other{16, "IQ2_XXS", 256, 66},
        Other{21, "IQ3_S", 256, 110},
        Other{34, "TQ1_0", 256, 54}}) {
    EXPECT_ERROR(
        repack(other.id, 1, other.columns, std::string(other.bytes, 1)),
        "unsupported",
        std::string("tensor 't' is stored as ") + other.name);
  }
}

TEST_F(Repack, AFileThatShrinksFailsTheLoadOnly) {
  GgufBuilder b;
  b.tensor("t", {1024, 64}, 0, std::string(1024 * 64 * 4, 'x'));
  auto path = folder_.write("t.gguf", b.build());
  GgufFile file(path);
  std::filesystem::resize_file(path, 100);
  EXPECT_ERROR(
      repack_gguf(file.file(), file.tensors()[0], {}, mx::float32, pool_),
      "bad_file",
      "truncated while");
}

}  // namespace
}  // namespace mlxx::hub
