#include "mlxx/base/utf8.h"

#include <gtest/gtest.h>

#include "mlxx/base/error.h"

namespace mlxx {
namespace {

TEST(Utf8, RefusesOverlongSurrogateAndTruncatedForms) {
  EXPECT_TRUE(is_valid_utf8("aé日😀"));
  for (const char* bad :
       {"\xC0\x80",
        "\xE0\x80\x80",
        "\xED\xA0\x80",
        "\xF4\x90\x80\x80",
        "\xF0\x9F\x98",
        "\x80",
        "\xFF"}) {
    EXPECT_FALSE(is_valid_utf8(bad)) << bad;
  }
}

TEST(Utf8, ReplacesEachMaximalIllFormedPartOnce) {
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98x"), "\xEF\xBF\xBDx");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xBD\xFF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Error, MessageIsOnePrintableLine) {
  Error error(ErrorKind::bad_file, "a\nb\x1b[31m\xff");
  EXPECT_STREQ(error.what(), "a\\nb\\x1b[31m\\xff");
}

}  // namespace
}  // namespace mlxx
