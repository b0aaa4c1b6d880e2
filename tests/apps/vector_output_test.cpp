#include "apps/mlxx/vector_output.h"

#include <cmath>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/mlxx/text_inputs.h"
#include "mlxx/base/json.h"
#include "mlxx/core/safetensors.h"
#include "tests/core/error_of.h"
#include "tests/core/temporary_folder.h"

namespace mlxx::apps {
namespace {

const std::vector<float> kNumbers = {0.1f, -2.5e-9f, 3.0f, 1.0f / 3, 1e20f, 0};

mx::array table() {
  mx::array made(kNumbers.data(), {2, 3}, mx::float32);
  mx::eval(made);
  return made;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> floats_of(std::string_view bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

TEST(VectorOutput, TheFileNameOrTheOptionChooses) {
  using enum VectorFormat;
  EXPECT_EQ(choose_vector_format("", ""), json);
  EXPECT_EQ(choose_vector_format("", "a.npy"), npy);
  EXPECT_EQ(choose_vector_format("", "a.f32"), raw);
  EXPECT_EQ(choose_vector_format("", "a.safetensors"), safetensors);
  EXPECT_EQ(choose_vector_format("", "a.txt"), json);
  EXPECT_EQ(choose_vector_format("json", "a.npy"), json);
  EXPECT_EQ(choose_vector_format("raw", ""), raw);
  EXPECT_ERROR(choose_vector_format("xml", ""), "invalid_request", "'xml'");
  EXPECT_ERROR(
      choose_vector_format("safetensors", ""),
      "invalid_request",
      "needs --output");
}

TEST(VectorOutput, JsonKeepsEveryFloat) {
  Json answer = parse_json(embeddings_json(table(), "a \"model\"", 7), "test");
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "a \"model\"");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 7);
  ASSERT_EQ(answer["data"].size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(answer["data"][i]["index"], i);
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(
          answer["data"][i]["embedding"][j].get<float>(),
          kNumbers[i * 3 + j]);
    }
  }
}

TEST(VectorOutput, JsonHasNoPlaceForNoNumber) {
  mx::array bad(std::vector<float>{1, NAN}.data(), {1, 2}, mx::float32);
  EXPECT_ERROR(embeddings_json(bad, "m", 1), "internal", "number 1 is nan");
}

TEST(VectorOutput, BinaryFilesHoldTheSameNumbers) {
  TemporaryFolder folder;
  auto path = [&](const char* name) { return (folder.path() / name).string(); };
  write_vectors(table(), VectorFormat::raw, path("v.f32"), "m", 1);
  EXPECT_EQ(floats_of(content_of(path("v.f32"))), kNumbers);
  write_vectors(table(), VectorFormat::npy, path("v.npy"), "m", 1);
  std::string npy = content_of(path("v.npy"));
  ASSERT_EQ(npy.size() % 64, kNumbers.size() * 4 % 64);
  EXPECT_TRUE(npy.starts_with(std::string("\x93NUMPY\x01\x00", 8)));
  EXPECT_NE(npy.find("'descr': '<f4'"), std::string::npos);
  EXPECT_NE(npy.find("'shape': (2, 3)"), std::string::npos);
  EXPECT_EQ(floats_of(std::string_view(npy).substr(npy.size() - 24)), kNumbers);
  write_vectors(
      table(),
      VectorFormat::safetensors,
      path("v.safetensors"),
      "m",
      1);
  SafetensorsFile file(path("v.safetensors"));
  ASSERT_NE(file.find("embeddings"), nullptr);
  EXPECT_TRUE(mx::array_equal(file.load(*file.find("embeddings")), table())
                  .item<bool>());
}

TEST(TextInputs, LinesJsonLinesAndArguments) {
  TemporaryFolder folder;
  using Texts = std::vector<std::string>;
  std::string lines =
      folder.write("a.txt", "first\r\n\n second \nlast").string();
  EXPECT_EQ(
      read_texts({.texts = {"given"}, .file = lines}),
      (Texts{"given", "first", " second ", "last"}));
  std::string json =
      folder
          .write("a.jsonl", "\"one\\ntwo\"\n{\"body\": \"three\", \"x\": 1}\n")
          .string();
  EXPECT_EQ(
      read_texts({.file = json, .field = "body"}),
      (Texts{"one\ntwo", "three"}));
  EXPECT_ERROR(
      read_texts({.file = json, .field = "text"}),
      "bad_file",
      "line 2");
  std::string bad = folder.write("b.txt", "[1]\n").string();
  EXPECT_ERROR(
      read_texts({.file = bad, .json_lines = true}),
      "invalid_request",
      "b.txt: line 1] is neither a string nor an object");
  std::string empty = folder.write("c.txt", "\n\n").string();
  EXPECT_ERROR(read_texts({.file = empty}), "invalid_request", "no text");
  EXPECT_ERROR(read_texts({.file = "/nonexistent"}), "not_found", "/nonexist");
}

}  // namespace
}  // namespace mlxx::apps
