#include <random>

#include <gtest/gtest.h>

#include "mlxx/api/carried_text.h"

namespace mlxx::api {
namespace {

TEST(CarriedText, Base64IsThatOfTheStandard) {
  // RFC 4648, section 10.
  const std::pair<const char*, const char*> kVectors[] = {
      {"", ""},
      {"f", "Zg=="},
      {"fo", "Zm8="},
      {"foo", "Zm9v"},
      {"foob", "Zm9vYg=="},
      {"fooba", "Zm9vYmE="},
      {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : kVectors) {
    EXPECT_EQ(base64_of(bytes), text);
    EXPECT_EQ(bytes_of_base64(text), bytes);
  }
  for (const char* bad :
       {"Z",
        "Zg",
        "Zg=",
        "Zg===",
        "Z===",
        "====",
        "Zh==",
        "Zm9=",
        "Zg==Zg==",
        "Zm9\n",
        "Zm-_",
        "Zm 9",
        "\xc3\xa9\xc3\xa9"}) {
    EXPECT_EQ(bytes_of_base64(bad), std::nullopt) << bad;
  }
}

TEST(CarriedText, ComesBackAsItWas) {
  std::mt19937 random(3);
  for (size_t size = 0; size < 200; ++size) {
    std::string bytes;
    for (size_t i = 0; i < size; ++i) {
      bytes += static_cast<char>(random());
    }
    EXPECT_EQ(bytes_of_base64(base64_of(bytes)), bytes);
  }
  EXPECT_EQ(carried_text(carry_text("hm é 😀")), "hm é 😀");
  EXPECT_EQ(carried_text(carry_text("")), "");
}

TEST(CarriedText, NothingElseIsTakenForIt) {
  for (const char* other : {"", "mlxx", "aG0=", "mlxx1:aG0", "mlxx2:aG0="}) {
    EXPECT_EQ(carried_text(other), std::nullopt) << other;
  }
  EXPECT_EQ(carried_text("mlxx1:" + base64_of("\xff")), std::nullopt);
}

}  // namespace
}  // namespace mlxx::api
