#include <algorithm>

#include "mlxx/hub/http_client.h"
#include "mlxx/hub/hub_api.h"
#include "tests/hub_net/hub_test.h"

// Tokens, refusals, redirects, and what a hostile listing holds.

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

class AccessTest : public HubTest {
 protected:
  Error refused_with(
      int status,
      const std::string& code = "",
      const std::string& said = "") {
    serve([=](const FakeRequest&) {
      return FakeResponse{
          .status = status,
          .headers = {{"X-Error-Code", code}, {"X-Error-Message", said}}};
    });
    Error error = error_of([&] { pull(); });
    EXPECT_EQ(server_->requests().size(), 1u);
    return error;
  }

  static bool says(const Error& error, const std::string& text) {
    return std::string(error.what()).find(text) != std::string::npos;
  }
};

TEST_F(AccessTest, UnknownOrPrivateModelAsksForToken) {
  Error error = refused_with(401, "", "Invalid username or password.");
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  EXPECT_TRUE(says(error, "set HF_TOKEN")) << error.what();
}

TEST_F(AccessTest, WrongTokenIsSaid) {
  settings_.token = "hf_wrong";
  Error error = refused_with(401);
  EXPECT_TRUE(says(error, "token in HF_TOKEN is wrong")) << error.what();
  EXPECT_FALSE(says(error, "hf_wrong")) << error.what();
}

TEST_F(AccessTest, GatedModelSaysWhereToAsk) {
  Error error = refused_with(403, "GatedRepo", "Access is restricted");
  EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
  EXPECT_TRUE(says(error, server_->url() + "/org/tiny")) << error.what();
  EXPECT_TRUE(says(error, "HF_TOKEN")) << error.what();
}

TEST_F(AccessTest, GatedModelWithoutTokenSaysWhereToAsk) {
  Error error = refused_with(401, "GatedRepo");
  EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
}

TEST_F(AccessTest, MissingModelAndRevisionDiffer) {
  Error error = refused_with(404, "RepoNotFound");
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  EXPECT_TRUE(says(error, "no such model")) << error.what();
  error = refused_with(404, "RevisionNotFound");
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  EXPECT_TRUE(says(error, "no revision 'main'")) << error.what();
}

TEST_F(AccessTest, WhatTheServerSaysIsOneShortLine) {
  Error error =
      refused_with(404, "RepoNotFound", std::string(5000, 'x') + "\x1b[2J");
  EXPECT_LT(std::string(error.what()).size(), 500u);
}

TEST_F(AccessTest, TokenGoesToTheHubOnly) {
  settings_.token = "hf_secret";
  FakeServer storage([&](const FakeRequest& request) {
    return answer_content(repo_.find(kWeights)->content, request);
  });
  serve([&](const FakeRequest& request) {
    if (request.path.ends_with(kWeights)) {
      return FakeResponse{
          .status = 302,
          .headers = {{"Location", storage.url() + "/blob?signature=1"}}};
    }
    return answer(repo_, request);
  });
  auto pulled = pull();
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
  for (const auto& request : server_->requests()) {
    EXPECT_EQ(request.header("authorization"), "Bearer hf_secret");
  }
  ASSERT_EQ(storage.requests().size(), 1u);
  EXPECT_EQ(storage.requests()[0].header("authorization"), "");
}

TEST_F(AccessTest, TokenDoesNotComeBackAfterAnotherHost) {
  settings_.token = "hf_secret";
  std::string back;
  FakeServer other([&](const FakeRequest&) {
    return FakeResponse{.status = 307, .headers = {{"Location", back}}};
  });
  serve([&](const FakeRequest& request) {
    if (request.path.ends_with(kWeights)) {
      return FakeResponse{
          .status = 302,
          .headers = {{"Location", other.url() + "/there"}}};
    }
    if (request.path == "/collect") {
      return answer_content(repo_.find(kWeights)->content, request);
    }
    return answer(repo_, request);
  });
  back = server_->url() + "/collect";
  pull();
  for (const auto& request : server_->requests()) {
    if (request.path == "/collect") {
      EXPECT_EQ(request.header("authorization"), "");
    }
  }
}

TEST_F(AccessTest, TokenStaysOnRedirectInsideTheHub) {
  settings_.token = "hf_secret";
  serve([&](const FakeRequest& request) {
    FakeRequest renamed = request;
    size_t at = request.path.find("org/old");
    if (at != std::string::npos) {
      renamed.path.replace(at, 7, "org/tiny");
      return FakeResponse{
          .status = 307,
          .headers = {{"Location", renamed.path}}};
    }
    return answer(repo_, request);
  });
  auto pulled = pull("org/old");
  EXPECT_TRUE(fs::exists(settings_.cache / "models--org--old"));
  EXPECT_EQ(
      content_of(pulled.path / "config.json"),
      repo_.find("config.json")->content);
  for (const auto& request : server_->requests()) {
    EXPECT_EQ(request.header("authorization"), "Bearer hf_secret");
  }
}

TEST_F(AccessTest, EndlessRedirectsAreAnError) {
  serve([&](const FakeRequest& request) {
    return FakeResponse{
        .status = 302,
        .headers = {{"Location", request.path + "x"}}};
  });
  EXPECT_TRUE(says(error_of([&] { pull(); }), "redirects more than"));
  EXPECT_LT(server_->requests().size(), 20u);
}

TEST_F(AccessTest, RedirectToAFileIsRefused) {
  serve([&](const FakeRequest& request) {
    return request.path.ends_with(kWeights)
        ? FakeResponse{.status = 302, .headers = {{"Location", "file:///etc/passwd"}}}
        : answer(repo_, request);
  });
  EXPECT_TRUE(says(error_of([&] { pull(); }), "file:///etc/passwd"));
}

TEST_F(AccessTest, HostileFileNamesRefuseTheModel) {
  using std::string_literals::operator""s;
  for (const std::string& name :
       {"../evil.json"s,
        "/etc/evil.json"s,
        "a/../../evil.json"s,
        "a//b.json"s,
        "./a.json"s,
        "a\\..\\b.json"s,
        "a\0.json"s,
        "a\n.json"s,
        ""s,
        std::string(300, 'a') + ".json"}) {
    repo_ = tiny_repo();
    repo_.files.push_back({.name = name, .content = "{}"});
    serve_repo();
    Error error = error_of([&] { pull(); });
    EXPECT_EQ(error.kind(), ErrorKind::bad_file) << name;
    EXPECT_FALSE(fs::exists(settings_.cache / "models--org--tiny/snapshots"));
  }
}

TEST_F(AccessTest, NameThatIsAlsoAFolderIsAnError) {
  repo_.files.push_back({.name = "a.json", .content = "{}"});
  repo_.files.push_back({.name = "a.json/b.json", .content = "{}"});
  serve_repo();
  EXPECT_EQ(
      error_of([&] { pull("org/tiny", {.include = {"*.json"}}); }).kind(),
      ErrorKind::internal);
}

TEST_F(AccessTest, DamagedListingsAreErrors) {
  for (const std::string& body :
       {std::string(""),
        std::string("<html>"),
        std::string("[]"),
        std::string("{}"),
        std::string(R"({"sha": "../../x", "siblings": []})"),
        std::string(R"({"sha": 5, "siblings": []})"),
        std::string(R"({"sha": "0123456789abcdef0123456789abcdef01234567"})"),
        std::string(R"({"sha": "0123456789abcdef0123456789abcdef01234567", )"
                    R"("siblings": [1]})"),
        std::string(R"({"sha": "0123456789abcdef0123456789abcdef01234567", )"
                    R"("siblings": [{"rfilename": "a.json", "size": -1}]})"),
        std::string(
            R"({"sha": "0123456789abcdef0123456789abcdef01234567", )"
            R"("siblings": [{"rfilename": "a.json", "blobId": "../x"}]})"),
        std::string(R"({"sha": "0123456789abcdef0123456789abcdef01234567", )"
                    R"("siblings": [{"rfilename": ")"
                    "\xff"
                    R"(.json"}]})"),
        std::string(R"({"sha": "0123456789abcdef0123456789abcdef01234567", )"
                    R"("siblings": [{"rfilename": "a.json"}, )"
                    R"({"rfilename": "a.json"}]})")}) {
    serve([&](const FakeRequest&) { return FakeResponse{.body = body}; });
    EXPECT_EQ(error_of([&] { pull(); }).kind(), ErrorKind::bad_file) << body;
  }
}

TEST_F(AccessTest, HashesComeFromHeadersWhereTheListingHasNone) {
  FakeServer storage([&](const FakeRequest& request) {
    return answer_content(repo_.find(kWeights)->content, request);
  });
  serve([&](const FakeRequest& request) {
    if (request.path.starts_with("/api/")) {
      return FakeResponse{
          .body = R"({"sha": ")" + repo_.commit +
              R"(", "siblings": [{"rfilename": "config.json"}, )" +
              R"({"rfilename": "model.safetensors"}]})"};
    }
    if (request.path.ends_with(kWeights)) {
      return FakeResponse{
          .status = 302,
          .headers = {
              {"Location", storage.url() + "/blob"},
              {"X-Linked-Etag", "\"" + repo_.hash(kWeights) + "\""},
              {"X-Linked-Size",
               std::to_string(repo_.find(kWeights)->content.size())}}};
    }
    return answer(repo_, request);
  });
  auto pulled = pull();
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
  EXPECT_TRUE(fs::exists(blob(kWeights)));
  EXPECT_TRUE(fs::exists(blob("config.json")));
}

TEST_F(AccessTest, FileWithoutHashIsRefused) {
  serve([&](const FakeRequest& request) {
    if (request.path.starts_with("/api/")) {
      return FakeResponse{
          .body = R"({"sha": ")" + repo_.commit +
              R"(", "siblings": [{"rfilename": "model.safetensors"}]})"};
    }
    return FakeResponse{.headers = {{"ETag", "\"abc\""}}, .body = "x"};
  });
  Error error = error_of([&] { pull(); });
  EXPECT_EQ(error.kind(), ErrorKind::bad_file);
  EXPECT_TRUE(says(error, "no hash")) << error.what();
}

TEST(UrlTest, OriginHasSchemeHostAndPort) {
  EXPECT_EQ(url_origin("https://Hub.example/a?b"), "https://hub.example:443");
  EXPECT_EQ(url_origin("http://u:p@h:8080/"), "http://h:8080");
  EXPECT_EQ(url_origin("ftp://h/"), "");
  EXPECT_EQ(url_origin("file:///etc/passwd"), "");
  EXPECT_EQ(url_origin("nonsense"), "");
}

TEST(UrlTest, EncodesAllButUnreserved) {
  EXPECT_EQ(url_encode("a b/c#\xc3\xa9", true), "a%20b/c%23%C3%A9");
  EXPECT_EQ(url_encode("refs/pr/1", false), "refs%2Fpr%2F1");
}

}  // namespace

}  // namespace mlxx::hub
