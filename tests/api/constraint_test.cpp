#include <gtest/gtest.h>

#include "mlxx/api/errors.h"
#include "tests/api/tiny_model.h"

namespace mlxx::api {

namespace {

OrderedJson body_with(std::string_view more) {
  OrderedJson body = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "hi"}]})");
  body.update(OrderedJson::parse(more));
  return body;
}

class Constraints : public testing::Test {
 protected:
  // "accepted", or the param of the 400.
  std::string refusal_of(std::string_view more) {
    try {
      answer_chat(body_with(more), context);
      return "accepted";
    } catch (const RequestError& error) {
      return error.status() == 400 ? error.param() : "another status";
    }
  }

  // Whether the answer of a request may be `text`, whole.
  bool allows(std::string_view more, std::string_view text) {
    const auto request =
        answer_chat(body_with(more), context)->take_requests().at(0);
    if (!request.constraint) {
      ADD_FAILURE() << "no constraint";
      return false;
    }
    text::GrammarMatcher matcher(
        context.model->grammar->get(*context.model),
        request.constraint->kind,
        request.constraint->grammar);
    for (char byte : text) {
      if (!matcher.commit(static_cast<uint8_t>(byte))) {
        return false;
      }
    }
    return matcher.is_accepting();
  }

  Context context = tiny_context();
};

TEST_F(Constraints, FormatsHoldTheAnswer) {
  EXPECT_TRUE(
      allows(R"({"response_format": {"type": "json_object"}})", R"({"a": 1})"));
  EXPECT_FALSE(
      allows(R"({"response_format": {"type": "json_object"}})", "say hi"));
  const std::string_view schema = R"({"response_format": {"type":
      "json_schema", "json_schema": {"name": "s", "strict": true, "schema":
      {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}},
      "required": ["mood"], "additionalProperties": false}}}})";
  EXPECT_TRUE(allows(schema, R"({"mood": "bad"})"));
  EXPECT_FALSE(allows(schema, R"({"mood": "odd"})"));
  EXPECT_TRUE(allows(R"({"regex": "[ab]+"})", "abba"));
  EXPECT_FALSE(allows(R"({"guided_regex": "[ab]+"})", "abc"));
  EXPECT_TRUE(allows(R"({"grammar": "start: \"yes\" | \"no\""})", "no"));
  EXPECT_TRUE(allows(R"({"guided_choice": ["a \"b\"", "c\\d"]})", "a \"b\""));
  EXPECT_TRUE(allows(R"({"guided_choice": ["a \"b\"", "c\\d"]})", "c\\d"));
  EXPECT_FALSE(allows(R"({"guided_choice": ["yes", "no"]})", "yesno"));
  EXPECT_TRUE(allows(R"({"json_schema": {"const": "\u65e5"}})", "\"\u65e5\""));
}

TEST_F(Constraints, WhatCannotBeEnforcedIsRefused) {
  const std::string path = "response_format.json_schema.schema";
  for (const char* schema :
       {R"({"type": "wat"})",
        R"({"$ref": "#/$defs/none"})",
        R"({"$ref": "https://example.com/schema.json"})",
        R"({"not": {"type": "string"}})",
        R"({"type": "string", "pattern": "("})",
        "5",
        "[]",
        R"("x")"}) {
    EXPECT_EQ(
        refusal_of(fmt::format(
            R"({{"response_format": {{"type": "json_schema", "json_schema":
            {{"name": "s", "schema": {}}}}}}})",
            schema)),
        path)
        << schema;
  }
  EXPECT_EQ(refusal_of(R"({"regex": "("})"), "regex");
  EXPECT_EQ(refusal_of(R"({"grammar": "start: nothing"})"), "grammar");
  EXPECT_EQ(refusal_of(R"({"grammar": ""})"), "grammar");
}

TEST_F(Constraints, WhatCannotBeFollowedIsRefused) {
  EXPECT_EQ(refusal_of(R"({"grammar": "start: a\na: a"})"), "grammar");
  EXPECT_EQ(refusal_of(R"({"regex": "(a{1000}){1000}"})"), "regex");
  EXPECT_EQ(
      refusal_of(R"({"json_schema": {"$ref": "#/$defs/a", "$defs":
      {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}})"),
      "json_schema");
  EXPECT_EQ(refusal_of(R"({"json_schema": false})"), "json_schema");
  // A tree that refers to itself is no circle.
  EXPECT_EQ(
      refusal_of(R"({"json_schema": {"$ref": "#/$defs/tree", "$defs": {"tree":
      {"type": "object", "properties": {"below": {"type": "array", "items":
      {"$ref": "#/$defs/tree"}}}}}}})"),
      "accepted");
  try {
    answer_chat(body_with(R"({"grammar": "start: a\na: a"})"), context);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_LT(std::string(error.what()).size(), 300u) << error.what();
  }
}

TEST_F(Constraints, SizesAreLimited) {
  context.limits.max_schema_bytes = 100;
  OrderedJson schema = {{"type", "string"}};
  schema["description"] = std::string(100, 'x');
  OrderedJson more = {{"json_schema", schema}};
  EXPECT_EQ(refusal_of(more.dump()), "json_schema");
  more = {{"regex", std::string(101, 'x')}};
  EXPECT_EQ(refusal_of(more.dump()), "regex");
}

TEST_F(Constraints, RegexesAreShort) {
  std::string letters;
  while (letters.size() <= 8192) {
    letters += "a?b?";
  }
  OrderedJson more = {{"regex", letters}};
  EXPECT_EQ(refusal_of(more.dump()), "regex");
  more = {{"json_schema", {{"pattern", letters}}}};
  EXPECT_EQ(refusal_of(more.dump()), "json_schema");
  more = {{"grammar", "start: /" + letters + letters + "/"}};
  EXPECT_EQ(refusal_of(more.dump()), "grammar");
  for (const char* name : {"pattern", "patternProperties"}) {
    OrderedJson x = {{"type", "string"}};
    x[name] = name == std::string("pattern") ? OrderedJson(letters)
                                             : OrderedJson({{letters, true}});
    more = {
        {"tools",
         OrderedJson::array(
             {{{"type", "function"},
               {"function",
                {{"name", "f"},
                 {"strict", true},
                 {"parameters",
                  {{"type", "object"}, {"properties", {{"x", x}}}}}}}}})}};
    EXPECT_EQ(refusal_of(more.dump()), "tools") << name;
  }
}

TEST_F(Constraints, OnlyOneHolds) {
  EXPECT_EQ(
      refusal_of(R"({"regex": "a", "grammar": "start: \"a\""})"),
      "regex");
  EXPECT_EQ(
      refusal_of(
          R"({"response_format": {"type": "json_object"}, "regex": "a"})"),
      "regex");
  EXPECT_EQ(
      refusal_of(R"({"response_format": {"type": "text"}, "regex": "a"})"),
      "accepted");
}

TEST_F(Constraints, WithToolsEitherTheSchemaOrACall) {
  const std::string_view more = R"({"response_format": {"type": "json_schema",
      "json_schema": {"name": "s", "schema": {"type": "object", "properties":
      {"mood": {"enum": ["good"]}}, "required": ["mood"],
      "additionalProperties": false}}}, "tools": [{"type": "function",
      "function": {"name": "f", "parameters": {"type": "object", "properties":
      {"x": {"type": "integer"}}, "required": ["x"],
      "additionalProperties": false}}}]})";
  EXPECT_TRUE(allows(more, R"({"mood": "good"})"));
  EXPECT_FALSE(allows(more, "hello"));
  const std::string call =
      "<tool_call>\n"
      R"({"name": "f", "arguments": {"x": 5}})"
      "\n</tool_call>";
  EXPECT_TRUE(allows(more, call));
  // A forced call leaves no answer for the schema.
  for (const char* choice :
       {R"("required")",
        R"({"type": "function", "function": {"name": "f"}})"}) {
    OrderedJson forced = OrderedJson::parse(more);
    forced["tool_choice"] = OrderedJson::parse(choice);
    EXPECT_EQ(refusal_of(forced.dump()), "response_format.json_schema.schema")
        << choice;
    forced.erase("response_format");
    EXPECT_TRUE(allows(forced.dump(), call)) << choice;
    for (const char* name : {"regex", "grammar"}) {
      OrderedJson other = forced;
      other[name] = name == std::string("regex") ? "a+" : "start: \"a\"";
      EXPECT_EQ(refusal_of(other.dump()), name) << choice;
    }
  }
  OrderedJson regex = OrderedJson::parse(more);
  regex.erase("response_format");
  regex["regex"] = "a+";
  EXPECT_EQ(refusal_of(regex.dump()), "regex");
}

TEST_F(Constraints, AToolThatCannotBeEnforcedIsNamed) {
  try {
    answer_chat(
        body_with(R"({"tool_choice": "required", "tools": [{"type": "function",
            "function": {"name": "odd_one", "parameters": {"type": "object",
            "properties": {"x": {"type": "wat"}}}}}]})"),
        context);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.param(), "tools");
    EXPECT_NE(std::string(error.what()).find("odd_one"), std::string::npos)
        << error.what();
  }
}

}  // namespace

}  // namespace mlxx::api
