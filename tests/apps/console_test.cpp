#include "apps/mlxx/console.h"

#include <chrono>

#include <gtest/gtest.h>

#include "apps/mlxx/generate_report.h"
#include "apps/mlxx/process_start.h"

namespace mlxx::apps {
namespace {

TEST(Console, ControlCharactersBecomeVisible) {
  EXPECT_EQ(visible_controls("a\tb\nc\r\n"), "a\tb\nc\r\n");
  EXPECT_EQ(visible_controls("\x1b[2J"), "\xE2\x90\x9B[2J");
  EXPECT_EQ(visible_controls(std::string_view("\0", 1)), "\xE2\x90\x80");
  EXPECT_EQ(visible_controls("\x7F"), "\xE2\x90\xA1");
  // U+009B, the one-character form of ESC [.
  EXPECT_EQ(
      visible_controls("\xC2\x9B"
                       "31m"),
      "\xEF\xBF\xBD"
      "31m");
  EXPECT_EQ(
      visible_controls("\xC3\xBC\xC2\xA0\xF0\x9F\x98\x80"),
      "\xC3\xBC\xC2\xA0\xF0\x9F\x98\x80");
}

TEST(Console, BytesAreReadable) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(94'530'000), "94.5 MB");
  EXPECT_EQ(format_bytes(999'600), "1.00 MB");
  EXPECT_EQ(format_bytes(7'240'000'000), "7.24 GB");
  EXPECT_EQ(format_bytes(141'000'000'000), "141 GB");
}

TEST(Console, TheProcessStartedNotLongAgo) {
  using Clock = std::chrono::steady_clock;
  auto age = Clock::now() - process_start();
  EXPECT_GE(age, Clock::duration::zero());
  EXPECT_LT(age, std::chrono::minutes(2));
}

}  // namespace
}  // namespace mlxx::apps
