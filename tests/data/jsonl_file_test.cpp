#include "mlxx/data/jsonl_file.h"

#include <gtest/gtest.h>

#include "tests/data/small_data.h"

namespace mlxx::data {
namespace {

using namespace std::string_literals;

TEST(JsonlFile, ToleratesByteOrderMarkCarriageReturnsAndBlankLines) {
  TemporaryFolder folder;
  JsonlFile file(folder.write(
      "a.jsonl",
      "\xEF\xBB\xBF\r\n{\"a\": 1}\r\n\n   \n{\"b\": 2}\n\r\n{\"c\": 3}\r\n "
      "\t"));
  ASSERT_EQ(file.size(), 3);
  EXPECT_EQ(file.read(0), "{\"a\": 1}");
  EXPECT_EQ(file.read(1), "{\"b\": 2}");
  EXPECT_EQ(file.read(2), "{\"c\": 3}");
  EXPECT_TRUE(file.place(2).ends_with("a.jsonl: line 7")) << file.place(2);
}

TEST(JsonlFile, FindsLinesAcrossThePiecesThatItReads) {
  TemporaryFolder folder;
  std::string content;
  std::vector<std::string> lines;
  for (int i = 0; i < 40; ++i) {
    lines.push_back(std::string(static_cast<size_t>(i) * 3001 + 1, 'x'));
    content += lines.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  lines.push_back(std::string((size_t{1} << 20) + 17, 'y'));
  content += lines.back();
  JsonlFile file(folder.write("a.jsonl", content));
  ASSERT_EQ(file.size(), 41);
  for (int64_t i = 0; i < file.size(); ++i) {
    EXPECT_EQ(file.read(i), lines[static_cast<size_t>(i)]) << i;
  }
}

TEST(JsonlFile, NamesWhatIsNoSuchFile) {
  SmallData made;
  EXPECT_EQ(
      made.error(""),
      "[train.jsonl] is empty (0 bytes), must hold one JSON object on each "
      "line");
  EXPECT_EQ(
      made.error("\n\r\n  \n"),
      "[train.jsonl] is empty (6 bytes), must hold one JSON object on each "
      "line");
  EXPECT_EQ(
      made.error("\xFF\xFE{\0\"\0"s),
      "[train.jsonl] is UTF-16, must be UTF-8");
  EXPECT_NE(made.error("{\0\"\0t\0"s).find("zero bytes"), std::string::npos);
  EXPECT_THROW(JsonlFile("/nowhere/at/all.jsonl"), Error);
  EXPECT_THROW(JsonlFile(made.folder.path()), Error);
}

TEST(JsonlFile, NamesTheLineThatIsTooLong) {
  SmallData made;
  std::string content =
      "{\"text\": \"a\"}\n\n" + std::string((size_t{16} << 20) + 1, 'x');
  EXPECT_EQ(
      made.error(content),
      "[train.jsonl: line 3] has 16777217 bytes, the limit is 16777216");
}

TEST(JsonlFile, ReportsAFileThatChangesWhileItIsInUse) {
  SmallData made;
  auto data = made.open("{\"text\": \"abc\"}\n{\"text\": \"def\"}\n");
  data->batch(0);
  std::ofstream(made.folder.path() / "train.jsonl") << "{\"text\": \"x\"}\n";
  try {
    data->batch(0);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("was changed"), std::string::npos);
  }
}

}  // namespace
}  // namespace mlxx::data
