#include "mlxx/hub/gguf_file.h"

#include <chrono>

#include <gtest/gtest.h>

#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"
#include "tests/hub/gguf_builder.h"

namespace mlxx::hub {
namespace {

class Gguf : public ::testing::Test {
 protected:
  GgufFile open(const std::string& content) {
    return GgufFile(folder_.write("model.gguf", content));
  }
  void expect_error(
      const std::string& content,
      const std::string& kind,
      const std::string& part) {
    std::string message = error_of([&] { open(content); });
    EXPECT_TRUE(message.starts_with(kind + ": ")) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  void expect_bad(const GgufBuilder& builder, const std::string& part) {
    expect_error(builder.build(), "bad_file", part);
  }

  TemporaryFolder folder_;
};

// A file with one key of the given type and bytes.
GgufBuilder with_value(uint32_t type, const std::string& bytes) {
  GgufBuilder b;
  b.value("a", type, bytes);
  return b;
}

GgufBuilder with_tensor(
    const std::vector<uint64_t>& axes,
    uint32_t type,
    const std::string& data) {
  GgufBuilder b;
  b.tensor("t", axes, type, data);
  return b;
}

TEST_F(Gguf, ValuesOfEveryTypeAreRead) {
  for (uint32_t version : {2u, 3u}) {
    GgufBuilder b;
    b.version = version;
    b.value("u8", 0, GgufBuilder::raw<uint8_t>(200));
    b.value("i8", 1, GgufBuilder::raw<int8_t>(-3));
    b.value("u16", 2, GgufBuilder::raw<uint16_t>(60000));
    b.value("i16", 3, GgufBuilder::raw<int16_t>(-300));
    b.u32("u32", 4000000000u);
    b.value("i32", 5, GgufBuilder::raw<int32_t>(-70000));
    b.f32("f32", 0.5f);
    b.boolean("yes", true);
    b.string("text", "grüße");
    b.value("u64", 10, GgufBuilder::raw<uint64_t>(uint64_t{1} << 40));
    b.value("i64", 11, GgufBuilder::raw<int64_t>(-(int64_t{1} << 40)));
    b.value("f64", 12, GgufBuilder::raw<double>(0.25));
    b.strings("names", {"x", "", "zz"});
    b.list<int32_t>("numbers", 5, {1, -2});
    b.list<float>("floats", 6, {1.5f});
    GgufFile file = open(b.build());
    const auto& m = file.metadata();
    EXPECT_EQ(m.integer("u8", 0, 255), 200);
    EXPECT_EQ(m.integer("i8", -10, 10), -3);
    EXPECT_EQ(m.integer("u16", 0, INT32_MAX), 60000);
    EXPECT_EQ(m.integer("i16", -1000, 0), -300);
    EXPECT_EQ(m.integer("u32", 0, UINT32_MAX), 4000000000);
    EXPECT_EQ(m.integer("i32", -100000, 0), -70000);
    EXPECT_EQ(m.number("f32"), 0.5);
    EXPECT_EQ(m.boolean_if("yes"), true);
    EXPECT_EQ(m.string("text"), "grüße");
    EXPECT_EQ(m.integer("u64", 0, INT64_MAX), int64_t{1} << 40);
    EXPECT_EQ(m.integer("i64", INT64_MIN, 0), -(int64_t{1} << 40));
    EXPECT_EQ(m.number("f64"), 0.25);
    EXPECT_EQ(
        m.strings("names"),
        (std::vector<std::string_view>{"x", "", "zz"}));
    EXPECT_EQ(m.integers("numbers"), (std::vector<int64_t>{1, -2}));
    EXPECT_EQ(m.floats("floats"), (std::vector<float>{1.5f}));
    EXPECT_EQ(m.boolean_if("none"), std::nullopt);
    EXPECT_TRUE(m.strings("none").empty());
    EXPECT_ERROR(m.integer("text", 0, 1), "bad_file", "'text' must be a whole");
    EXPECT_ERROR(m.integer("names", 0, 1), "bad_file", "must be a whole");
    EXPECT_ERROR(m.integer("u8", 0, 9), "bad_file", "'u8' is 200, allowed 0");
    EXPECT_ERROR(m.integer("none", 0, 9), "bad_file", "'none' is missing");
    EXPECT_ERROR(m.strings("numbers"), "bad_file", "a list of strings");
    EXPECT_ERROR(m.floats("text"), "bad_file", "a list of numbers");
    EXPECT_ERROR(m.integers("names"), "bad_file", "a list of whole numbers");
    EXPECT_ERROR(m.number("text"), "bad_file", "must be a number");
    EXPECT_ERROR(m.string("u8"), "bad_file", "must be a string");
    EXPECT_ERROR(m.boolean_if("u8"), "bad_file", "true or false");
  }
}

TEST_F(Gguf, TensorsAreListedWithShapesSlowestFirst) {
  GgufBuilder b;
  b.tensor("a", {64, 3}, 2, std::string(6 * 18, 'x'));
  b.tensor("b", {5}, 0, std::string(20, 'y'));
  GgufFile file = open(b.build());
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(file.tensors()[0].type->name, "Q4_0");
  EXPECT_EQ(file.tensors()[0].nbytes, 6u * 18);
  EXPECT_EQ(file.tensors()[1].offset % 32, 0u);
  EXPECT_EQ(
      static_cast<char>(file.file().bytes()[file.tensors()[1].offset]),
      'y');
}

TEST_F(Gguf, StringLengthsAreBoundedByTheFile) {
  expect_bad(
      with_value(8, GgufBuilder::raw<uint64_t>(0x400000)),
      "a needs 4194304 bytes");
  expect_bad(
      with_value(8, GgufBuilder::raw<uint64_t>(uint64_t{1} << 63)),
      "a needs 9223372036854775808 bytes");
  GgufBuilder long_key;
  long_key.claimed_values = 1;
  expect_error(
      long_key.build() + GgufBuilder::raw<uint64_t>(uint64_t{1} << 63) +
          std::string(64, 'k'),
      "bad_file",
      "a key has 9223372036854775808 bytes");
}

TEST_F(Gguf, ListLengthsAreBoundedByTheFile) {
  auto list = [](uint32_t element, uint64_t count) {
    return GgufBuilder::raw(element) + GgufBuilder::raw(count);
  };
  expect_bad(
      with_value(9, list(4, uint64_t{1} << 62)),
      "announces 4611686018427387904 elements");
  expect_bad(with_value(9, list(8, uint64_t{1} << 62)), "strings");
  expect_bad(
      with_value(
          9,
          list(8, 2) + GgufBuilder::text("x") +
              GgufBuilder::raw<uint64_t>(UINT64_MAX)),
      "a needs 18446744073709551615 bytes");
  expect_bad(with_value(9, list(9, 1)), "list of lists");
  expect_bad(with_value(9, list(77, 1)), "unknown type 77");
  expect_bad(with_value(13, std::string(8, '\0')), "unknown type 13");
}

TEST_F(Gguf, CountsAreBoundedByTheFile) {
  GgufBuilder b;
  b.claimed_tensors = uint64_t{1} << 62;
  expect_bad(b, "4611686018427387904 tensors are announced");
  GgufBuilder c;
  c.claimed_values = UINT64_MAX;
  expect_bad(c, "18446744073709551615 keys are announced");
  GgufBuilder d = tiny_llama();
  d.claimed_tensors = 12;
  expect_bad(d, "");
}

TEST_F(Gguf, OffsetsThatWrapOrLeaveTheFileAreRefused) {
  auto with_second_at = [](uint64_t offset) {
    GgufBuilder b;
    b.tensor("first", {8}, 0, std::string(32, 'a'));
    auto& second = b.tensor("second", {8}, 0, std::string(32, 'b'));
    second.has_offset = true;
    second.offset = offset;
    return b;
  };
  expect_bad(with_second_at(UINT64_MAX - 31), "'second' needs 32 bytes");
  expect_bad(with_second_at(64), "'second' needs 32 bytes at 64");
  expect_bad(with_second_at(0), "overlap");
  expect_bad(with_second_at(33), "no multiple of 32");
  EXPECT_EQ(open(with_second_at(32).build()).tensors().size(), 2u);
}

TEST_F(Gguf, TruncatedDataNamesTheTensor) {
  std::string content = tiny_llama().build();
  for (size_t cut : {1u, 100u, 5000u}) {
    // The last padding may be missing.
    if (cut > 32) {
      expect_error(
          content.substr(0, content.size() - cut),
          "bad_file",
          "file truncated: tensor");
    }
  }
  // Every shorter file fails in some place, none of them crashes.
  for (size_t size = 0; size + 400 < content.size(); size += 97) {
    expect_error(content.substr(0, size), "bad_file", "");
  }
}

TEST_F(Gguf, SizesAreComputedInSixtyFourBits) {
  // 2^32 rows of 64: 144 GiB of Q4_0 in a file of holes.
  GgufBuilder b;
  b.tensor("t", {64, uint64_t{1} << 32}, 2, "");
  std::string content = b.build();
  auto path = folder_.write("model.gguf", content);
  EXPECT_ERROR(GgufFile{path}, "bad_file", "needs 154618822656 bytes");
  std::error_code error;
  std::filesystem::resize_file(path, content.size() + 154618822656ull, error);
  if (!error) {
    EXPECT_EQ(GgufFile(path).tensors()[0].nbytes, 154618822656ull);
  }
}

TEST_F(Gguf, ShapesMustBePossible) {
  expect_bad(
      with_tensor({33}, 8, std::string(68, '\0')),
      "a row of 33 is no whole number of Q8_0 blocks of 32");
  expect_bad(with_tensor({(uint64_t{1} << 63) - 1, 2}, 0, ""), "is too large");
  expect_bad(with_tensor({uint64_t{1} << 62}, 0, ""), "is too large");
  expect_bad(
      with_tensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, ""),
      "is too large");
  expect_bad(with_tensor({0, 4}, 0, ""), "axis 0 of 0 is empty");
  expect_bad(with_tensor({}, 0, ""), "has 0 axes");
  expect_bad(with_tensor({1, 1, 1, 1, 1}, 0, "1234"), "has 5 axes");
  expect_error(
      with_tensor({32}, 4, "").build(),
      "unsupported",
      "'t' has the unknown type 4");
}

TEST_F(Gguf, AlignmentMustBeASanePowerOfTwo) {
  auto with_alignment = [](uint32_t type, const std::string& bytes) {
    GgufBuilder b;
    b.value("general.alignment", type, bytes);
    return b;
  };
  auto raw = [](uint32_t v) { return GgufBuilder::raw(v); };
  expect_bad(with_alignment(5, raw(32)), "must be a uint32");
  for (uint32_t bad : {0u, 3u, 1u, 48u, 1u << 31}) {
    expect_bad(with_alignment(4, raw(bad)), "power of two");
  }
  GgufBuilder b = with_alignment(4, raw(64));
  b.alignment = 64;
  b.tensor("t", {1}, 0, "1234");
  b.tensor("u", {1}, 0, "5678");
  GgufFile file = open(b.build());
  EXPECT_EQ(file.tensors()[1].offset - file.tensors()[0].offset, 64u);
}

TEST_F(Gguf, DuplicatesAreRefused) {
  GgufBuilder b;
  b.u32("a", 1);
  b.u32("a", 1);
  expect_bad(b, "the key 'a' stands twice");
  GgufBuilder c;
  c.tensor("t", {1}, 0, "1234");
  c.tensor("t", {1}, 0, "1234");
  expect_bad(c, "the tensor 't' stands twice");
}

TEST_F(Gguf, NamesMustBeUtf8) {
  GgufBuilder b;
  b.u32("\xff", 1);
  expect_bad(b, "key name is not valid UTF-8");
  GgufBuilder c;
  c.tensor("\xc3", {1}, 0, "1234");
  expect_bad(c, "tensor name is not valid UTF-8");
  GgufBuilder d;
  d.tensor("", {1}, 0, "1234");
  expect_bad(d, "tensor name is empty");
}

TEST_F(Gguf, OtherFilesAndVersionsAreRecognised) {
  expect_error("", "bad_file", "the file is empty");
  expect_error("GG", "bad_file", "not a GGUF file");
  expect_error("GGUF", "bad_file", "the version");
  expect_error(
      "version https://git-lfs.github.com/spec/v1\n",
      "bad_file",
      "Git LFS pointer");
  expect_error("<html>", "bad_file", "HTML page");
  GgufBuilder b;
  b.version = 1;
  expect_error(b.build(), "unsupported", "GGUF version 1");
  b.version = 4;
  expect_error(b.build(), "bad_file", "GGUF version 4");
  b.version = 3u << 24;
  expect_error(b.build(), "unsupported", "big-endian");
}

TEST_F(Gguf, ABigVocabularyOpensFast) {
  GgufBuilder b;
  std::vector<std::string> tokens;
  for (int i = 0; i < 262144; ++i) {
    tokens.push_back("token" + std::to_string(i));
  }
  b.strings("tokenizer.ggml.tokens", tokens);
  auto path = folder_.write("big.gguf", b.build());
  auto start = std::chrono::steady_clock::now();
  GgufFile file(path);
  EXPECT_EQ(file.metadata().strings("tokenizer.ggml.tokens").size(), 262144u);
  auto elapsed = std::chrono::steady_clock::now() - start;
  // A few milliseconds; the bound is for sanitizers and busy machines.
  EXPECT_LT(elapsed, std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace mlxx::hub
