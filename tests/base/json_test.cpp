#include "mlxx/base/json.h"

#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"

namespace mlxx {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Json, RefusesWhatTheLibraryLetsThrough) {
  EXPECT_EQ(
      error_of([] { parse_json(R"({"a":1,"a":2})", "x.json"); }),
      "[x.json] duplicate key 'a'");
  EXPECT_EQ(
      error_of([] { parse_json(std::string(200000, '['), "x.json"); }),
      "[x.json] nested deeper than 64 levels");
  EXPECT_NE(error_of([] { parse_json("", "x.json"); }), "");
  EXPECT_NE(error_of([] { parse_json("{\"a\":\"\xff\"}", "x.json"); }), "");
  EXPECT_NE(error_of([] { parse_json("[1e400]", "x.json"); }), "");
  EXPECT_NE(error_of([] { parse_json("[NaN]", "x.json"); }), "");
  EXPECT_NE(error_of([] { parse_json("{} x", "x.json"); }), "");
  EXPECT_EQ(parse_json("\xEF\xBB\xBF{}", "x.json").size(), 0u);
}

TEST(Json, OrderedKeepsTheOrderOfKeys) {
  EXPECT_EQ(
      parse_ordered_json(R"({"b":1,"a":2})", "x").dump(),
      R"({"b":1,"a":2})");
}

TEST(JsonView, NamesFileKeyAndValue) {
  Json json = parse_json(
      R"({"n":5,"f":4.0,"big":18446744073709551615,"s":"x","null":null})",
      "");
  JsonView view(json, "config.json");
  EXPECT_EQ(view.integer("n", 0, 10), 5);
  EXPECT_EQ(view.integer("f", 0, 10), 4);
  EXPECT_EQ(view.integer_or("null", 7, 0, 10), 7);
  EXPECT_EQ(
      error_of([&] { view.integer("n", 6, 10); }),
      "[config.json] 'n' is 5, allowed 6 to 10");
  EXPECT_EQ(
      error_of([&] { view.integer("absent", 0, 1); }),
      "[config.json] 'absent' is missing");
  EXPECT_NE(error_of([&] { view.integer("big", 0, INT64_MAX); }), "");
  EXPECT_NE(error_of([&] { view.integer("s", 0, 1); }), "");
  EXPECT_NE(error_of([&] { view.number("s"); }), "");
  EXPECT_NE(error_of([&] { view.object("s"); }), "");
}

}  // namespace
}  // namespace mlxx
