#include "mlxx/server/access_rules.h"

#include <gtest/gtest.h>

namespace mlxx::server {

namespace {

HttpRequest request(
    const std::string& host,
    const std::vector<HttpHeader>& more = {}) {
  HttpRequest result;
  result.headers = more;
  result.headers.push_back({"Host", host});
  result.peer = "127.0.0.1";
  return result;
}

int status(
    const AccessOptions& options,
    const HttpRequest& request,
    bool is_open = false) {
  auto refusal = AccessRules(options).check(request, is_open);
  return refusal ? refusal->status : 200;
}

}  // namespace

TEST(AccessRules, KnowsTheNamesOfThisServer) {
  AccessOptions options;
  options.host = "127.0.0.1";
  for (const char* host :
       {"localhost",
        "localhost:8080",
        "LOCALHOST",
        "127.0.0.1:1",
        "[::1]:80",
        "::1",
        "127.0.0.2",
        "app.localhost",
        "localhost."}) {
    EXPECT_EQ(status(options, request(host)), 200) << host;
  }
  for (const char* host :
       {"evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "",
        "[::1",
        "127.0.0.1@evil"}) {
    int expected = std::string_view(host) == "[::1" ? 200 : 403;
    EXPECT_EQ(status(options, request(host)), expected) << host;
  }
  options.allowed_hosts = {"llm.example:443"};
  EXPECT_EQ(status(options, request("LLM.example")), 200);
  options.host = "0.0.0.0";
  EXPECT_EQ(status(options, request("10.0.0.1:8080")), 200);
  EXPECT_EQ(status(options, request("evil.example")), 403);
  options.allowed_hosts = {"*"};
  EXPECT_EQ(status(options, request("evil.example")), 200);
  auto local = request("whatever");
  local.is_local = true;
  EXPECT_EQ(status(AccessOptions(), local), 200);
}

TEST(AccessRules, WebPagesNeedToBeListed) {
  AccessOptions options;
  options.host = "127.0.0.1";
  auto from = [](const std::string& origin) {
    return request("localhost:8080", {{"Origin", origin}});
  };
  EXPECT_EQ(status(options, from("https://evil.example")), 403);
  EXPECT_EQ(status(options, from("null")), 403);
  EXPECT_EQ(status(options, from("")), 403);
  EXPECT_EQ(status(options, from("http://localhost:8080")), 200);
  EXPECT_EQ(status(options, from("http://localhost:9999")), 403);
  EXPECT_TRUE(AccessRules(options).origin_headers(from("null")).empty());

  options.allowed_origins = {"https://app.example"};
  AccessRules rules(options);
  EXPECT_EQ(status(options, from("https://app.example")), 200);
  EXPECT_EQ(status(options, from("https://app.example.evil")), 403);
  auto headers = rules.origin_headers(from("https://app.example"));
  ASSERT_FALSE(headers.empty());
  EXPECT_EQ(headers[0].value, "https://app.example");
  EXPECT_EQ(rules.origin_headers(from("https://other"))[0].name, "Vary");

  options.allowed_origins = {"*"};
  for (const auto& header :
       AccessRules(options).origin_headers(from("https://evil.example"))) {
    EXPECT_NE(header.name, "Access-Control-Allow-Credentials");
  }
}

TEST(AccessRules, KeysAreComparedWhole) {
  AccessOptions options;
  options.host = "127.0.0.1";
  options.api_keys = {"first-key", "second-key"};
  auto with = [](const std::string& name, const std::string& value) {
    return request("localhost", {{name, value}});
  };
  EXPECT_EQ(status(options, request("localhost")), 401);
  EXPECT_EQ(status(options, request("localhost"), true), 200);
  EXPECT_EQ(status(options, with("Authorization", "Bearer first-key")), 200);
  EXPECT_EQ(status(options, with("authorization", "bearer  second-key")), 200);
  EXPECT_EQ(status(options, with("X-Api-Key", "second-key")), 200);
  EXPECT_EQ(status(options, with("Authorization", "Bearer first-kez")), 401);
  EXPECT_EQ(status(options, with("Authorization", "Bearer first-ke")), 401);
  EXPECT_EQ(status(options, with("Authorization", "Bearer ")), 401);
  EXPECT_EQ(status(options, with("Authorization", "Basic first-key")), 401);
  EXPECT_EQ(status(options, with("X-Api-Key", "")), 401);
  // Whoever asks from a foreign page learns nothing about keys.
  auto foreign = request("evil.example", {{"X-Api-Key", "first-key"}});
  EXPECT_EQ(status(options, foreign), 403);
  AccessRules rules(options);
  EXPECT_EQ(
      rules.tenant(with("X-Api-Key", "first-key")),
      rules.tenant(with("Authorization", "Bearer first-key")));
  EXPECT_NE(
      rules.tenant(with("X-Api-Key", "first-key")),
      rules.tenant(with("X-Api-Key", "second-key")));
}

}  // namespace mlxx::server
