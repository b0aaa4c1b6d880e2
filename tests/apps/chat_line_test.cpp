#include <gtest/gtest.h>

#include "apps/mlxx/chat_session.h"

namespace mlxx::apps {
namespace {

using Kind = ChatLine::Kind;

TEST(ChatLine, Messages) {
  EXPECT_EQ(parse_chat_line("  hello there \r").kind, Kind::message);
  EXPECT_EQ(parse_chat_line("  hello there \r").text, "hello there");
  EXPECT_EQ(parse_chat_line("a /exit").kind, Kind::message);
  EXPECT_EQ(parse_chat_line("//etc/hosts?").text, "/etc/hosts?");
  EXPECT_EQ(parse_chat_line("//etc/hosts?").kind, Kind::message);
  EXPECT_EQ(parse_chat_line("").kind, Kind::empty);
  EXPECT_EQ(parse_chat_line(" \t").kind, Kind::empty);
}

TEST(ChatLine, Commands) {
  EXPECT_EQ(parse_chat_line("/reset").kind, Kind::reset);
  EXPECT_EQ(parse_chat_line(" /exit ").kind, Kind::exit);
  EXPECT_EQ(parse_chat_line("/help").kind, Kind::help);
  EXPECT_EQ(parse_chat_line("/system  Be brief. ").kind, Kind::system);
  EXPECT_EQ(parse_chat_line("/system  Be brief. ").text, "Be brief.");
  EXPECT_EQ(parse_chat_line("/system").text, "");
}

TEST(ChatLine, UnknownCommandsAreNoMessages) {
  EXPECT_EQ(parse_chat_line("/rest").kind, Kind::unknown);
  EXPECT_EQ(parse_chat_line("/rest").text, "/rest");
  EXPECT_EQ(parse_chat_line("/systemic change").kind, Kind::unknown);
  EXPECT_EQ(parse_chat_line("/exit now").kind, Kind::unknown);
  EXPECT_EQ(parse_chat_line("/").kind, Kind::unknown);
}

}  // namespace
}  // namespace mlxx::apps
