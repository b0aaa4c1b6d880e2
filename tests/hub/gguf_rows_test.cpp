#include "mlxx/hub/gguf_rows.h"

#include <cstring>

#include <gtest/gtest.h>

#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx::hub {
namespace {

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

class Rows : public ::testing::Test {
 protected:
  GgufFile file_of(uint32_t type, uint64_t rows, const std::string& data) {
    GgufBuilder b;
    b.tensor("t", {64, rows}, type, data);
    return GgufFile(folder_.write("t.gguf", b.build()));
  }

  TemporaryFolder folder_;
  ThreadPool pool_{1};
};

TEST_F(Rows, AreThoseOfMlxsFormInAnyOrder) {
  for (const auto& type : kCases) {
    std::string data = random_blocks(48, type.bytes, type.halves, type.id);
    GgufFile file = file_of(type.id, 24, data);
    const GgufTensor& tensor = file.tensors()[0];
    for (int64_t head_rows : {0, 8}) {
      RowOrder order{head_rows};
      Weight expected =
          repack_gguf(file.file(), tensor, order, mx::float16, pool_);
      auto rows = gguf_rows(file.file(), tensor, order);
      ASSERT_TRUE(rows);
      EXPECT_EQ(rows->form().rows, 24);
      EXPECT_EQ(rows->form().columns, 64);
      EXPECT_EQ(rows->form().bits, type.bits);
      EXPECT_EQ(rows->form().symmetric, type.halves == 1);
      std::vector<uint32_t> words(5 * 2 * type.bits);
      std::vector<uint16_t> scales(10), biases(10);
      for (int64_t first : {0, 3, 19}) {
        ASSERT_TRUE(
            rows->read(first, 5, words.data(), scales.data(), biases.data()));
        EXPECT_EQ(
            std::memcmp(
                words.data(),
                expected.weight.data<uint32_t>() + first * 2 * type.bits,
                words.size() * 4),
            0);
        EXPECT_EQ(
            std::memcmp(
                scales.data(),
                expected.scales->data<mx::float16_t>() + first * 2,
                20),
            0);
        if (type.halves == 2) {
          EXPECT_EQ(
              std::memcmp(
                  biases.data(),
                  expected.biases->data<mx::float16_t>() + first * 2,
                  20),
              0);
        }
      }
    }
  }
}

TEST_F(Rows, NumbersThatFloat16CannotHoldAreReported) {
  auto reads = [&](const TypeCase& type, uint16_t scale, uint16_t bias) {
    std::string data = random_blocks(4, type.bytes, type.halves, 1);
    std::memcpy(data.data() + type.bytes, &scale, 2);
    if (type.halves == 2) {
      std::memcpy(data.data() + type.bytes + 2, &bias, 2);
    }
    GgufFile file = file_of(type.id, 2, data);
    auto rows = gguf_rows(file.file(), file.tensors()[0], {});
    std::vector<uint32_t> words(4 * type.bits);
    std::vector<uint16_t> scales(4), biases(4);
    return rows->read(0, 2, words.data(), scales.data(), biases.data());
  };
  constexpr uint16_t kInfinity = 0x7c00, kNan = 0xfe01, kLargest = 0xfbff;
  for (const auto& type : kCases) {
    EXPECT_FALSE(reads(type, kInfinity, 0));
    EXPECT_FALSE(reads(type, kNan, 0));
    EXPECT_TRUE(reads(type, 0x8000, 0x8000));
    EXPECT_EQ(reads(type, kLargest, kLargest), type.halves == 2);
  }
  EXPECT_FALSE(reads(kCases[1], 0, kInfinity));
  // The last scales below 8192 and 512, and the first that are not.
  EXPECT_TRUE(reads(kCases[0], 0x6fff, 0));
  EXPECT_FALSE(reads(kCases[0], 0x7000, 0));
  EXPECT_TRUE(reads(kCases[2], 0x5fff, 0));
  EXPECT_FALSE(reads(kCases[2], 0x6000, 0));
}

TEST_F(Rows, OnlyOfQuantizedMatrices) {
  GgufBuilder b;
  b.tensor("t", {64, 2}, kGgufF16, std::string(256, '\0'));
  b.tensor("v", {64}, kGgufQ4_0, random_blocks(2, 18, 1, 1));
  GgufFile file(folder_.write("t.gguf", b.build()));
  for (const auto& tensor : file.tensors()) {
    EXPECT_FALSE(gguf_rows(file.file(), tensor, {}));
  }
}

}  // namespace
}  // namespace mlxx::hub
