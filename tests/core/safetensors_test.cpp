#include "mlxx/core/safetensors.h"

#include <filesystem>

#include <fstream>

#include <gtest/gtest.h>

#include "mlxx/core/safetensors_writer.h"
#include "tests/core/error_of.h"
#include "tests/core/safetensors_builder.h"
#include "tests/core/temporary_folder.h"

namespace mlxx {
namespace {

const std::string kFour(4, '\0');
const std::string kEight(8, '\0');

class Safetensors : public ::testing::Test {
 protected:
  std::string error_for(const std::string& content) {
    auto path = folder_.write("model.safetensors", content);
    return error_of([&] { SafetensorsFile file(path); });
  }
  void expect_error(
      const std::string& content,
      const std::string& kind,
      const std::string& part) {
    std::string message = error_for(content);
    EXPECT_TRUE(message.starts_with(kind + ": ")) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  void expect_bad_header(
      const std::string& header,
      const std::string& data,
      const std::string& part) {
    expect_error(safetensors_text(header, data), "bad_file", part);
  }

  TemporaryFolder folder_;
};

TEST_F(Safetensors, EveryDtypeComesBackAsItWasWritten) {
  std::vector<std::pair<std::string, mx::array>> arrays;
  for (auto dtype :
       {mx::float32,
        mx::float16,
        mx::bfloat16,
        mx::uint32,
        mx::uint8,
        mx::int8,
        mx::int16,
        mx::uint16,
        mx::int32,
        mx::int64,
        mx::uint64,
        mx::bool_}) {
    arrays.emplace_back(
        fmt::format("t{}", arrays.size()),
        mx::astype(mx::reshape(mx::arange(6), {2, 3}), dtype));
  }
  arrays.emplace_back("scalar", mx::array(2.5f));
  arrays.emplace_back("empty", mx::zeros({0, 3}));
  // Not contiguous in memory.
  arrays.emplace_back(
      "transposed",
      mx::transpose(mx::reshape(mx::arange(6), {2, 3})));
  auto path = folder_.path() / "out.safetensors";
  write_safetensors(path, arrays, {{"format", "mlx"}});

  SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "mlx");
  ASSERT_EQ(file.entries().size(), arrays.size());
  for (const auto& [name, expected] : arrays) {
    const auto* entry = file.find(name);
    ASSERT_NE(entry, nullptr) << name;
    mx::array got = file.load(*entry);
    EXPECT_EQ(got.dtype(), expected.dtype()) << name;
    EXPECT_EQ(got.shape(), expected.shape()) << name;
    EXPECT_TRUE(mx::array_equal(got, expected).item<bool>()) << name;
  }
  EXPECT_EQ(file.find("other"), nullptr);
  // MLX reads the same.
  auto loaded = mx::load_safetensors(path.string()).first;
  EXPECT_TRUE(mx::array_equal(loaded.at("transposed"), arrays.back().second)
                  .item<bool>());
}

TEST_F(Safetensors, LargeTensorsAreCopiedWhole) {
  mx::array big = mx::reshape(mx::arange(0, 3'000'001, 1, mx::int32), {-1});
  auto path = folder_.path() / "big.safetensors";
  write_safetensors(path, {{"small", mx::array(7)}, {"big", big}});
  SafetensorsFile file(path);
  EXPECT_TRUE(mx::array_equal(file.load(*file.find("big")), big).item<bool>());
}

TEST_F(Safetensors, TheWriterRefusesTwiceTheSameNameAndLeavesNoFile) {
  auto path = folder_.path() / "out.safetensors";
  EXPECT_ERROR(
      write_safetensors(path, {{"a", mx::array(1)}, {"a", mx::array(2)}}),
      "invalid_request",
      "'a'");
  EXPECT_ERROR(
      write_safetensors(path, {{"__metadata__", mx::array(1)}}),
      "invalid_request",
      "reserved");
  EXPECT_ERROR(
      write_safetensors("/nonexistent/x.safetensors", {{"a", mx::array(1)}}),
      "internal",
      "cannot create");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Safetensors, ShapeAndByteRangeMustAgree) {
  expect_bad_header(
      R"({"t":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})",
      kFour,
      "'t': shape [1000, 1000] of F32 needs 4000000 bytes, data_offsets give "
      "4");
  expect_bad_header(
      R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
      kFour,
      "'t': data_offsets [4, 0] run backwards");
  for (const char* offsets : {"[0]", "[0,4,8]", "[]"}) {
    expect_bad_header(
        fmt::format(
            R"({{"t":{{"dtype":"F32","shape":[1],"data_offsets":{}}}}})",
            offsets),
        kFour,
        "'t': data_offsets must be two numbers");
  }
}

TEST_F(Safetensors, SizesThatOverflowAreRefused) {
  expect_bad_header(
      R"({"t":{"dtype":"F32","shape":[4611686018427387904,4],)"
      R"("data_offsets":[0,0]}})",
      "",
      "too large");
  expect_bad_header(
      R"({"t":{"dtype":"F32","shape":[18446744073709551615],)"
      R"("data_offsets":[0,4]}})",
      kFour,
      "too large");
  expect_bad_header(
      R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
      kFour,
      "negative");
}

TEST_F(Safetensors, ADataRangeBeyondTheFileIsATruncatedFile) {
  expect_bad_header(
      R"({"t":{"dtype":"F32","shape":[1024],"data_offsets":[0,4096]}})",
      std::string(100, '\0'),
      "file truncated");
}

TEST_F(Safetensors, AFileThatShrinksAfterOpeningFailsTheLoadOnly) {
  auto path = folder_.path() / "shrinks.safetensors";
  write_safetensors(path, {{"t", mx::zeros({65536})}});
  SafetensorsFile file(path);
  std::filesystem::resize_file(path, 100);
  EXPECT_ERROR(file.load(*file.find("t")), "bad_file", "truncated while");
}

TEST_F(Safetensors, UnknownDtypesAreNamedBeforeOffsetsAreLookedAt) {
  expect_error(
      safetensors_text(
          R"({"a":{"dtype":"I4","shape":[2],"data_offsets":[9999999,9999999]}})",
          ""),
      "unsupported",
      "'a' has the unknown dtype 'I4'");
  expect_error(
      safetensors_text(
          R"({"a":{"dtype":"","shape":[2],"data_offsets":[0,8]}})",
          kEight),
      "unsupported",
      "unknown dtype ''");
  expect_bad_header(
      R"({"a":{"dtype":null,"shape":[2],"data_offsets":[0,8]}})",
      kEight,
      "unexpected null in 'dtype'");
}

TEST_F(Safetensors, KnownDtypesThatCannotBeComputedWithFailWhenLoaded) {
  for (std::string dtype : {"F8_E5M2", "F8_E4M3", "F8_E8M0"}) {
    auto path = folder_.write(
        "t.safetensors",
        safetensors_text(
            safetensors_header({safetensors_entry("t", dtype, "[8]", 0, 8)}),
            kEight));
    SafetensorsFile file(path);
    EXPECT_ERROR(file.load(file.entries()[0]), "unsupported", dtype);
  }
}

TEST_F(Safetensors, ForeignFilesAreRecognised) {
  expect_error(
      "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
      "bad_file",
      "Git LFS pointer");
  expect_error(
      "<!DOCTYPE html><html><body>404</body></html>",
      "bad_file",
      "HTML page");
  expect_error("", "bad_file", "the file is empty");
  expect_error("abc", "bad_file", "3 bytes");
  expect_error(
      std::string("PK\x03\x04", 4) + std::string(60, 'x'),
      "bad_file",
      "ZIP archive");
  expect_error(std::string(16, '\xff'), "bad_file", "a header of 18446744073");
}

TEST_F(Safetensors, DuplicateNamesAndFieldsAreRefused) {
  expect_bad_header(
      safetensors_header(
          {safetensors_entry("a", "F32", "[1]", 0, 4),
           safetensors_entry("a", "F32", "[1]", 4, 8)}),
      kEight,
      "tensor 'a' stands twice");
  expect_bad_header(
      R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],)"
      R"("data_offsets":[0,4]}})",
      kFour,
      "'dtype' twice");
}

TEST_F(Safetensors, OverlapsAndHolesAreRefused) {
  expect_bad_header(
      safetensors_header(
          {safetensors_entry("a", "F32", "[2]", 0, 8),
           safetensors_entry("b", "F32", "[1]", 4, 8)}),
      kEight,
      "'a' and 'b' overlap");
  expect_bad_header(
      safetensors_header({safetensors_entry("a", "F32", "[1]", 0, 4)}),
      std::string(404, '\0'),
      "400 bytes after the last tensor");
  expect_bad_header(
      safetensors_header(
          {safetensors_entry("a", "F32", "[1]", 0, 4),
           safetensors_entry("b", "F32", "[1]", 8, 12)}),
      std::string(12, '\0'),
      "4 bytes before tensor 'b'");
}

TEST_F(Safetensors, MetadataMayBeNull) {
  auto path = folder_.path() / "null.safetensors";
  std::ofstream(path, std::ios::binary) << safetensors_text(
      safetensors_header(
          {R"("__metadata__":null)",
           safetensors_entry("a", "F32", "[1]", 0, 4)}),
      kFour);
  SafetensorsFile file(path);
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(file.entries().size(), 1u);
}

TEST_F(Safetensors, HeadersThatAreNotPlainJsonObjectsAreRefused) {
  auto entry = safetensors_entry("a", "F32", "[1]", 0, 4);
  expect_bad_header(
      "\xEF\xBB\xBF" + safetensors_header({entry}),
      kFour,
      "byte order mark");
  expect_bad_header(fmt::format("[{}]", entry), kFour, "begin with '{'");
  expect_bad_header(fmt::format("{{{}", entry), kFour, "not valid JSON");
  expect_bad_header(
      safetensors_header({entry}) + " x",
      kFour,
      "not valid JSON");
  expect_bad_header(
      safetensors_header({R"("__metadata__":{"x":1})", entry}),
      kFour,
      "__metadata__ may hold strings only, 'x' is a number");
  expect_bad_header("{\"a\":4}", kFour, "unexpected a number");
  expect_bad_header(
      R"({"a":{"dtype":"F32","shape":[1]}})",
      kFour,
      "no 'data_offsets'");
  expect_bad_header(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})",
      kFour,
      "unknown field 'x'");
  expect_bad_header("{\"a\xff\":{}}", kFour, "not valid JSON");
}

TEST_F(Safetensors, DeepNestingIsRefusedAtOnce) {
  expect_bad_header(
      "{\"a\":{\"dtype\":" + std::string(200'000, '[') +
          std::string(200'000, ']') + "}}",
      "",
      "unexpected a list");
  expect_bad_header(
      "{\"a\":{\"shape\":" + std::string(200'000, '['),
      "",
      "unexpected a list");
}

TEST_F(Safetensors, AMissingFileIsNotFound) {
  EXPECT_ERROR(
      SafetensorsFile(folder_.path() / "none.safetensors"),
      "not_found",
      "none.safetensors");
}

}  // namespace
}  // namespace mlxx
