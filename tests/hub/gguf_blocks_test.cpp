// Every quantized type of GGUF against the format's formulas in float64, one
// number at a time.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "mlxx/hub/gguf_repack.h"
#include "mlxx/hub/gguf_rows.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx::hub {
namespace {

using Bytes = const uint8_t*;

double half(Bytes at) {
  int bits = at[0] | at[1] << 8;
  int exponent = bits >> 10 & 31;
  int fraction = bits & 1023;
  double size = exponent == 0 ? std::ldexp(fraction, -24)
                              : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

int nibble(Bytes at, int j) {
  return j < 16 ? at[j] & 15 : at[j - 16] >> 4;
}

double q4_0(Bytes b, int i) {
  return half(b) * (nibble(b + 2, i) - 8);
}
double q4_1(Bytes b, int i) {
  return half(b) * nibble(b + 4, i) + half(b + 2);
}
int fifth(Bytes high, int i) {
  return (high[i / 8] >> i % 8 & 1) * 16;
}
double q5_0(Bytes b, int i) {
  return half(b) * (nibble(b + 6, i) + fifth(b + 2, i) - 16);
}
double q5_1(Bytes b, int i) {
  return half(b) * (nibble(b + 8, i) + fifth(b + 4, i)) + half(b + 2);
}
double q8_0(Bytes b, int i) {
  return half(b) * static_cast<int8_t>(b[2 + i]);
}

// Element i of two-bit numbers: 32 bytes hold 128, the first 32 of them in the
// lowest two bits.
int two_bits(Bytes at, int i) {
  return at[i / 128 * 32 + i % 32] >> (i % 128) / 32 * 2 & 3;
}
double q2_k(Bytes b, int i) {
  int both = b[i / 16];
  return half(b + 80) * (both % 16) * two_bits(b + 16, i) -
      half(b + 82) * (both / 16);
}
double q3_k(Bytes b, int i) {
  Bytes packed = b + 96;
  int j = i / 16;
  int low = j < 8 ? packed[j] % 16 : packed[j - 8] / 16;
  int high = packed[8 + j % 4] >> j / 4 * 2 & 3;
  int scale = low + 16 * high - 32;
  bool has_bit = b[i % 32] >> i / 32 & 1;
  return half(b + 108) * scale * (two_bits(b + 32, i) - (has_bit ? 0 : 4));
}

int k_scale(Bytes s, int j) {
  return j < 4 ? s[j] % 64 : s[j + 4] % 16 + s[j - 4] / 64 * 16;
}
int k_minimum(Bytes s, int j) {
  return j < 4 ? s[j + 4] % 64 : s[j + 4] / 16 + s[j] / 64 * 16;
}
int k_nibble(Bytes at, int i) {
  int byte = at[i / 64 * 32 + i % 32];
  return i % 64 < 32 ? byte % 16 : byte / 16;
}
double q4_k(Bytes b, int i) {
  return half(b) * k_scale(b + 4, i / 32) * k_nibble(b + 16, i) -
      half(b + 2) * k_minimum(b + 4, i / 32);
}
double q5_k(Bytes b, int i) {
  int q = k_nibble(b + 48, i) + (b[16 + i % 32] >> i / 32 & 1) * 16;
  return half(b) * k_scale(b + 4, i / 32) * q -
      half(b + 2) * k_minimum(b + 4, i / 32);
}
double q6_k(Bytes b, int i) {
  int byte = b[i / 128 * 64 + i % 64];
  int low = i % 128 < 64 ? byte % 16 : byte / 16;
  int q = low + 16 * two_bits(b + 128, i) - 32;
  return half(b + 208) * static_cast<int8_t>(b[192 + i / 16]) * q;
}

constexpr int kTable[] =
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
double iq4_nl(Bytes b, int i) {
  return half(b) * kTable[nibble(b + 2, i)];
}
double iq4_xs(Bytes b, int i) {
  int j = i / 32;
  int high = (b[2] | b[3] << 8) >> 2 * j & 3;
  int low = j % 2 ? b[4 + j / 2] / 16 : b[4 + j / 2] % 16;
  return half(b) * (low + 16 * high - 32) *
      kTable[nibble(b + 8 + 16 * j, i % 32)];
}
double mxfp4(Bytes b, int i) {
  constexpr double kValues[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  int q = nibble(b + 1, i);
  double value = std::ldexp(kValues[q % 8], b[0] - 127);
  return q < 8 ? value : -value;
}

struct Type {
  uint32_t id;
  const char* name;
  int elements;
  int bytes;
  std::vector<int> halves;  // where the float16 numbers stand
  double (*formula)(Bytes, int);
  int bits;  // of the form that MLX gets; 0: float32
  int group;
  // Of the six blocks below, what ggml's own dequantize_row gives: the sum of
  // element i times i mod 11 + 1.
  double sum;
};

const std::vector<Type>& types() {
  static const std::vector<Type> kTypes = {
      {2, "Q4_0", 32, 18, {0}, q4_0, 4, 32, 9.557571411132812},
      {3, "Q4_1", 32, 20, {0, 2}, q4_1, 4, 32, -45.958709716796875},
      {6, "Q5_0", 32, 22, {0}, q5_0, 5, 32, 4.922027587890625},
      {7, "Q5_1", 32, 24, {0, 2}, q5_1, 5, 32, 121.62953758239746},
      {8, "Q8_0", 32, 34, {0}, q8_0, 8, 32, -123.52639770507812},
      {10, "Q2_K", 256, 84, {80, 82}, q2_k, 0, 0, -584.2794799804688},
      {11, "Q3_K", 256, 110, {108}, q3_k, 8, 128, -208.4141502380371},
      {12, "Q4_K", 256, 144, {0, 2}, q4_k, 4, 32, -15495.127407073975},
      {13, "Q5_K", 256, 176, {0, 2}, q5_k, 5, 32, -20794.602905273438},
      {14, "Q6_K", 256, 210, {208}, q6_k, 0, 0, -4066.1835079193115},
      {20, "IQ4_NL", 32, 18, {0}, iq4_nl, 8, 32, -6.258495330810547},
      {23, "IQ4_XS", 256, 136, {0}, iq4_xs, 8, 32, 4391.429447174072},
      {39, "MXFP4", 32, 17, {}, mxfp4, 4, 32, -35.953125}};
  return kTypes;
}

// Random bytes with scales of a usual size.
std::string random_data(const Type& type, int blocks) {
  uint32_t state = type.id * 2654435761u + 1;
  auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return state >> 16;
  };
  std::string out;
  for (int i = 0; i < blocks; ++i) {
    std::string block;
    for (int b = 0; b < type.bytes; ++b) {
      block += static_cast<char>(next());
    }
    for (int at : type.halves) {
      uint32_t bits = next() & 0x83ff;
      bits |= (6 + next() % 4) << 10;
      block[at] = static_cast<char>(bits);
      block[at + 1] = static_cast<char>(bits >> 8);
    }
    if (type.halves.empty()) {
      block[0] = static_cast<char>(120 + next() % 8);
    }
    out += block;
  }
  return out;
}

std::vector<double> reference(const Type& type, const std::string& data) {
  std::vector<double> out;
  for (size_t at = 0; at < data.size(); at += type.bytes) {
    for (int i = 0; i < type.elements; ++i) {
      out.push_back(type.formula(reinterpret_cast<Bytes>(data.data()) + at, i));
    }
  }
  return out;
}

class Blocks : public ::testing::Test {
 protected:
  Weight repack(
      const Type& type,
      int rows,
      int columns,
      const std::string& data,
      mx::Dtype scales = mx::float32) {
    GgufBuilder b;
    b.tensor(
        "t",
        {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)},
        type.id,
        data);
    file_ = std::make_unique<GgufFile>(folder_.write("t.gguf", b.build()));
    return repack_gguf(file_->file(), file_->tensors()[0], {}, scales, pool_);
  }
  static std::vector<float> values(const Type& type, const Weight& w) {
    mx::array dense = type.bits == 0
        ? w.weight
        : mx::dequantize(
              w.weight,
              *w.scales,
              w.biases,
              type.group,
              type.bits,
              type.id == kGgufMxfp4 ? "mxfp4" : "affine",
              std::nullopt,
              mx::float32);
    dense.eval();
    return {dense.data<float>(), dense.data<float>() + dense.size()};
  }

  TemporaryFolder folder_;
  ThreadPool pool_{2};
  std::unique_ptr<GgufFile> file_;
};

TEST_F(Blocks, TheFormulasAreThoseOfTheFormatsAuthors) {
  for (const Type& type : types()) {
    auto all = reference(type, random_data(type, 6));
    double sum = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      // ggml rounds Q2_K's differences to float32.
      sum += static_cast<double>(static_cast<float>(all[i])) *
          static_cast<double>(i % 11 + 1);
    }
    EXPECT_DOUBLE_EQ(sum, type.sum) << type.name;
  }
}

TEST_F(Blocks, EveryNumberIsExactInFloat32) {
  for (const Type& type : types()) {
    int columns = type.elements * 3;
    std::string data = random_data(type, 7 * 3);
    Weight w = repack(type, 7, columns, data);
    EXPECT_EQ(w.scales.has_value(), type.bits > 0);
    auto expected = reference(type, data);
    auto got = values(type, w);
    ASSERT_EQ(got.size(), expected.size()) << type.name;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], static_cast<float>(expected[i]))
          << type.name << " element " << i;
    }
  }
}

// What the scales alone can hold: the numbers themselves are integers.
TEST_F(Blocks, ScalesAndBiasesAreExactInFloat32) {
  for (const Type& type : types()) {
    if (type.bits == 0 || !type.formula || type.id == kGgufMxfp4) {
      continue;
    }
    std::string data = random_data(type, 4);
    Weight w = repack(type, 1, type.elements * 4, data);
    mx::array words = mx::dequantize(
        w.weight,
        mx::ones_like(*w.scales),
        mx::zeros_like(*w.biases),
        type.group,
        type.bits,
        "affine",
        std::nullopt,
        mx::float32);
    words.eval();
    auto expected = reference(type, data);
    for (size_t i = 0; i < expected.size(); ++i) {
      size_t group = i / static_cast<size_t>(type.group);
      double q = words.data<float>()[i];
      double value = q * static_cast<double>(w.scales->data<float>()[group]) +
          static_cast<double>(w.biases->data<float>()[group]);
      ASSERT_EQ(value, expected[i]) << type.name << " element " << i;
    }
  }
}

TEST_F(Blocks, LargeTensorsAreSplitOverThreadsWithTheSameResult) {
  for (const Type& type : types()) {
    // Above what one thread does alone.
    int blocks = (300 << 10) / type.bytes / 16 * 16;
    std::string data = random_data(type, blocks);
    Weight w = repack(type, blocks / 16, type.elements * 16, data);
    auto expected = reference(type, data);
    auto got = values(type, w);
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      wrong += got[i] != static_cast<float>(expected[i]);
    }
    EXPECT_EQ(wrong, 0u) << type.name;
  }
}

TEST_F(Blocks, ProductsThatOverflowFloat16AreNoted) {
  // d = 2,048 with scales of 63.
  Type type = types()[7];
  std::string data(type.bytes, '\x3f');
  data[0] = data[2] = 0;
  data[1] = data[3] = 0x68;
  EXPECT_TRUE(repack(type, 1, 256, data).scales);
  EXPECT_ERROR(
      repack(type, 1, 256, data, mx::float16),
      "unsupported",
      "too large for float16");
}

TEST_F(Blocks, RowsOfBytesComeStraightFromTheFile) {
  for (const Type& type : types()) {
    std::string data = random_data(type, 8);
    Weight w = repack(type, 8, type.elements, data);
    auto rows = gguf_rows(file_->file(), file_->tensors()[0], {});
    bool is_fitting = type.id == kGgufQ4_0 || type.id == kGgufQ4_1 ||
        type.id == kGgufQ8_0 || type.id == kGgufIq4Nl;
    ASSERT_EQ(rows != nullptr, is_fitting) << type.name;
    if (!rows) {
      continue;
    }
    std::vector<uint32_t> words(8 * type.bits);
    std::vector<uint16_t> scales(8), biases(8);
    ASSERT_TRUE(rows->read(0, 8, words.data(), scales.data(), biases.data()));
    for (size_t i = 0; i < words.size(); ++i) {
      EXPECT_EQ(words[i], w.weight.data<uint32_t>()[i]) << type.name;
    }
  }
}

}  // namespace
}  // namespace mlxx::hub
