#include "mlxx/capi/status.h"

#include <new>
#include <string>

#include <gtest/gtest.h>

namespace mlxx::capi {
namespace {

TEST(Status, EveryKindHasItsOwn) {
  EXPECT_EQ(status_of(ErrorKind::invalid_request), MLXX_INVALID_REQUEST);
  EXPECT_EQ(status_of(ErrorKind::unsupported), MLXX_UNSUPPORTED);
  EXPECT_EQ(status_of(ErrorKind::not_found), MLXX_NOT_FOUND);
  EXPECT_EQ(status_of(ErrorKind::bad_file), MLXX_BAD_FILE);
  EXPECT_EQ(status_of(ErrorKind::out_of_memory), MLXX_OUT_OF_MEMORY);
  EXPECT_EQ(status_of(ErrorKind::cancelled), MLXX_CANCELLED);
  EXPECT_EQ(status_of(ErrorKind::internal), MLXX_INTERNAL);
}

TEST(Status, LongMessagesEndAtAWholeCharacter) {
  char text[6];
  copy_message("abcd\u00e9f", {.text = text, .capacity = sizeof text});
  EXPECT_STREQ(text, "abcd");
  copy_message("abc\u00e9f", {.text = text, .capacity = sizeof text});
  EXPECT_STREQ(text, "abc\u00e9");
  copy_message("ab", {.text = text, .capacity = sizeof text});
  EXPECT_STREQ(text, "ab");
  copy_message("ab", {.text = nullptr, .capacity = 0});
}

TEST(Status, OfWhateverWasThrown) {
  char text[64];
  ErrorText error{.text = text, .capacity = sizeof text};
  try {
    throw std::bad_alloc();
  } catch (...) {
    EXPECT_EQ(describe_current_exception(error), MLXX_OUT_OF_MEMORY);
  }
  try {
    throw 3;
  } catch (...) {
    EXPECT_EQ(describe_current_exception(error), MLXX_INTERNAL);
  }
  try {
    fail(ErrorKind::bad_file, "config.json", "is {}", "empty");
  } catch (...) {
    EXPECT_EQ(describe_current_exception(error), MLXX_BAD_FILE);
    EXPECT_STREQ(text, "[config.json] is empty");
  }
}

}  // namespace
}  // namespace mlxx::capi
