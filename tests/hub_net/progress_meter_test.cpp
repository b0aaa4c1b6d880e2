#include "mlxx/hub/progress_meter.h"

#include <gtest/gtest.h>

namespace mlxx::hub {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const ProgressMeter::Time kStart{seconds(1000)};

TEST(ProgressMeterTest, PlainLinesComeEveryFewSeconds) {
  ProgressMeter meter(ProgressStyle::plain, 80, kStart);
  PullProgress progress{.file = "model.gguf", .total = 100'000'000};
  int lines = 0;
  for (int i = 1; i <= 100; ++i) {  // 10 s, 10 MB/s
    progress.done = static_cast<uint64_t>(i) * 1'000'000;
    auto text = meter.update(progress, kStart + milliseconds(100 * i));
    if (text) {
      ++lines;
      EXPECT_EQ(text->find('\r'), std::string::npos);
      EXPECT_EQ(text->back(), '\n');
      if (i == 50) {
        EXPECT_EQ(
            *text,
            " 50 %  50.0 MB of 100.0 MB  10.0 MB/s  5 s left  model.gguf\n");
      }
    }
  }
  EXPECT_EQ(lines, 2);
  EXPECT_EQ(meter.clear(), "");
}

TEST(ProgressMeterTest, TerminalLineIsWrittenOver) {
  ProgressMeter meter(ProgressStyle::terminal, 40, kStart);
  PullProgress progress{
      .file = "a/very/long/folder/name/model-00001-of-00002.safetensors",
      .done = 5,
      .total = 10};
  EXPECT_FALSE(meter.update(progress, kStart + milliseconds(50)));
  EXPECT_EQ(meter.clear(), "");
  auto text = meter.update(progress, kStart + milliseconds(100));
  ASSERT_TRUE(text);
  EXPECT_TRUE(text->starts_with("\r"));
  EXPECT_TRUE(text->ends_with("\x1b[K"));
  EXPECT_LT(text->size() - 4, 40u);
  EXPECT_NE(text->find("..."), std::string::npos);
  EXPECT_EQ(meter.clear(), "\r\x1b[K");
}

TEST(ProgressMeterTest, ResumedBytesCountForNoRate) {
  ProgressMeter meter(ProgressStyle::plain, 80, kStart);
  PullProgress progress{
      .file = "m",
      .done = 0,
      .total = 100'000'000,
      .resumed = 90'000'000};
  meter.update(progress, kStart);
  progress.done = 95'000'000;
  auto text = meter.update(progress, kStart + seconds(5));
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("  1.0 MB/s  5 s left"), std::string::npos) << *text;
}

TEST(ProgressMeterTest, RateIsThatOfTheLastSeconds) {
  ProgressMeter meter(ProgressStyle::plain, 80, kStart);
  PullProgress progress{.file = "m", .total = 1'000'000'000};
  std::optional<std::string> last;
  for (int i = 0; i <= 40; ++i) {
    // 20 s of 10 MB/s, then 1 MB/s.
    progress.done += i <= 20 ? 10'000'000 : 1'000'000;
    if (auto text = meter.update(progress, kStart + seconds(i))) {
      last = text;
    }
  }
  ASSERT_TRUE(last);
  EXPECT_NE(last->find("1.0 MB/s"), std::string::npos) << *last;
}

TEST(ProgressMeterTest, HundredPercentOnlyWhenDone) {
  ProgressMeter meter(ProgressStyle::plain, 80, kStart);
  auto text = meter.update(
      {.file = "m", .done = 999'999'999, .total = 1'000'000'000},
      kStart + seconds(5));
  EXPECT_TRUE(text->starts_with(" 99 %")) << *text;
  text = meter.update(
      {.file = "m", .done = 1'000'000'000, .total = 1'000'000'000},
      kStart + seconds(10));
  EXPECT_TRUE(text->starts_with("100 %")) << *text;
}

TEST(ProgressMeterTest, FileNamesCannotControlTheTerminal) {
  ProgressMeter meter(ProgressStyle::terminal, 80, kStart);
  auto text = meter.update(
      {.file = "a\x1b[2J\r.json", .done = 1, .total = 2},
      kStart + seconds(1));
  EXPECT_EQ(text->find("\x1b[2J"), std::string::npos);
  EXPECT_EQ(text->find('\r', 1), std::string::npos);
}

TEST(ProgressMeterTest, SizesAndTimes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(999'999), "1.0 MB");
  EXPECT_EQ(format_bytes(98'362'432), "98.4 MB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "18.4 EB");
  EXPECT_EQ(format_duration(seconds(59)), "59 s");
  EXPECT_EQ(format_duration(seconds(200)), "3 min 20 s");
  EXPECT_EQ(format_duration(seconds(7500)), "2 h 5 min");
}

}  // namespace

}  // namespace mlxx::hub
