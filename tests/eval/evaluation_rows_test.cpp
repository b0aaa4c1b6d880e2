#include "mlxx/eval/evaluation_rows.h"

#include <numeric>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "tests/core/temporary_folder.h"
#include "tests/eval/tiny_pipeline.h"

namespace mlxx::eval {
namespace {

ScoredRow counted(int size) {
  ScoredRow row;
  row.tokens.resize(static_cast<size_t>(size));
  std::iota(row.tokens.begin(), row.tokens.end(), 0);
  row.targets.assign(row.tokens.size(), 1);
  row.targets[0] = 0;
  return row;
}

// Tokens that are predicted, in the order of the windows.
std::vector<int32_t> predicted(const std::vector<ScoredRow>& windows) {
  std::vector<int32_t> out;
  for (const ScoredRow& window : windows) {
    EXPECT_EQ(window.targets.at(0), 0);
    for (size_t t = 0; t < window.tokens.size(); ++t) {
      if (window.targets[t]) {
        out.push_back(window.tokens[t]);
      }
    }
  }
  return out;
}

TEST(Windows, SideBySideLeaveOutTheirFirstTokens) {
  auto windows = windows_of(counted(10), {.length = 4});
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[1].tokens, (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(windows[2].tokens, (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(predicted(windows), (std::vector<int32_t>{1, 2, 3, 5, 6, 7, 9}));
  // A rest of one token predicts nothing.
  EXPECT_EQ(windows_of(counted(9), {.length = 4}).size(), 2u);
}

TEST(Windows, ThatOverlapPredictEachTokenOnce) {
  for (int length = 2; length < 9; ++length) {
    for (int stride = 1; stride < length; ++stride) {
      std::vector<int32_t> expected(19);
      std::iota(expected.begin(), expected.end(), 1);
      EXPECT_EQ(
          predicted(
              windows_of(counted(20), {.length = length, .stride = stride})),
          expected)
          << length << " " << stride;
    }
  }
}

TEST(Windows, RefuseLengthsOutOfRange) {
  EXPECT_THROW(windows_of(counted(9), {.length = 1}), Error);
  EXPECT_THROW(windows_of(counted(9), {.length = 4, .stride = 5}), Error);
  EXPECT_THROW(windows_of(counted(9), {.length = 4, .stride = -1}), Error);
}

TEST(WindowsOfFile, OfATextBeginWithTheBosIfTheModelWantsIt) {
  TemporaryFolder folder;
  auto file = folder.write("a.txt", "abc");
  auto windows = windows_of_file(file, tiny_pipeline(), {});
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].tokens.size(), 3u);
  auto with_bos = windows_of_file(file, tiny_pipeline(true), {});
  EXPECT_EQ(with_bos[0].tokens.size(), 4u);
  EXPECT_THROW(
      windows_of_file(folder.write("b.txt", "\xFF"), tiny_pipeline(), {}),
      Error);
  EXPECT_THROW(
      windows_of_file(folder.write("b.txt", ""), tiny_pipeline(), {}),
      Error);
  EXPECT_THROW(
      windows_of_file(folder.path() / "c.txt", tiny_pipeline(), {}),
      Error);
}

TEST(WindowsOfFile, OfJsonLinesAreThoseOfEachSample) {
  TemporaryFolder folder;
  auto file = folder.write(
      "a.jsonl",
      "{\"prompt\": \"abc\", \"completion\": \"de\"}\n"
      "{\"prompt\": \"x\", \"completion\": \"y\"}\n");
  auto windows = windows_of_file(file, tiny_pipeline(), {});
  ASSERT_EQ(windows.size(), 2u);
  // With the EOS.
  EXPECT_EQ(predicted(windows).size(), 5u + 2u);
  windows = windows_of_file(
      file,
      tiny_pipeline(),
      {.length = 4, .mask_prompt = true});
  ASSERT_EQ(windows.size(), 3u);
  // "d" in the first window, the EOS in the next, whose first token "e" is
  // left out.
  EXPECT_EQ(windows[0].tokens.size(), 4u);
  EXPECT_EQ(predicted(windows).size(), 2u + 2u);
}

}  // namespace
}  // namespace mlxx::eval
