#include <algorithm>

#include "tests/hub_net/hub_test.h"

// Whole pulls of org/repo, and what a server that misbehaves leads to.

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

using PullTest = HubTest;

TEST_F(PullTest, MakesHuggingFaceLayout) {
  serve_repo();
  auto pulled = pull();
  fs::path repo = settings_.cache / "models--org--tiny";
  EXPECT_EQ(pulled.path, repo / "snapshots" / repo_.commit);
  EXPECT_EQ(pulled.revision, repo_.commit);
  EXPECT_EQ(content_of(repo / "refs" / "main"), repo_.commit);
  for (const char* name : {"config.json", "tokenizer.json", kWeights}) {
    fs::path link = pulled.path / name;
    EXPECT_EQ(
        fs::read_symlink(link),
        fs::path("../../blobs") / repo_.hash(name));
    EXPECT_EQ(content_of(link), repo_.find(name)->content);
  }
  EXPECT_TRUE(fs::exists(
      settings_.cache / ".locks/models--org--tiny" /
      (repo_.hash(kWeights) + ".lock")));
  EXPECT_TRUE(content_of(settings_.cache / "CACHEDIR.TAG")
                  .starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
}

TEST_F(PullTest, TakesNeitherPicklesNorCode) {
  serve_repo();
  auto pulled = pull();
  EXPECT_FALSE(fs::exists(pulled.path / "pytorch_model.bin"));
  EXPECT_FALSE(fs::exists(pulled.path / "modeling_tiny.py"));
  EXPECT_TRUE(requests_for("pytorch_model.bin").empty());
  EXPECT_TRUE(requests_for("modeling_tiny.py").empty());
}

TEST_F(PullTest, SecondPullAsksForTheListingOnly) {
  serve_repo();
  EXPECT_GT(pull().downloaded, 0u);
  size_t before = server_->requests().size();
  EXPECT_EQ(pull().downloaded, 0u);
  EXPECT_EQ(server_->requests().size(), before + 1);
}

TEST_F(PullTest, MovedBranchKeepsBothSnapshots) {
  serve_repo();
  auto first = pull();
  repo_.commit = "fedcba9876543210fedcba9876543210fedcba98";
  repo_.files[2].content = R"({"model_type": "llama", "new": 1})";
  auto second = pull();
  EXPECT_TRUE(fs::exists(first.path / "config.json"));
  EXPECT_EQ(content_of(second.path / "config.json"), repo_.files[2].content);
  EXPECT_EQ(
      content_of(settings_.cache / "models--org--tiny/refs/main"),
      repo_.commit);
  // The weights did not change and were not got again.
  EXPECT_EQ(requests_for(kWeights).size(), 1u);
}

TEST_F(PullTest, RevisionGetsItsOwnRef) {
  serve_repo();
  pull("org/tiny@refs/pr/1");
  EXPECT_EQ(
      content_of(settings_.cache / "models--org--tiny/refs/refs/pr/1"),
      repo_.commit);
  EXPECT_EQ(
      server_->requests().front().path,
      "/api/models/org/tiny/revision/refs%2Fpr%2F1?blobs=true");
}

TEST_F(PullTest, ResumesAfterCutConnection) {
  int attempts = 0;
  serve([&](const FakeRequest& request) {
    auto response = answer(repo_, request);
    if (request.path.ends_with(kWeights) && attempts++ < 3) {
      response.cut_after = 50000;
    }
    return response;
  });
  auto pulled = pull();
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
  std::vector<std::optional<uint64_t>> starts;
  for (const auto& request : requests_for(kWeights)) {
    starts.push_back(request.range_start());
  }
  EXPECT_EQ(
      starts,
      (std::vector<std::optional<uint64_t>>{
          std::nullopt,
          50000,
          100000,
          150000}));
}

TEST_F(PullTest, ResumesWhatAnEarlierPullLeft) {
  serve_repo();
  write_content(
      part(kWeights),
      repo_.find(kWeights)->content.substr(0, 123456));
  PullProgress last;
  auto pulled =
      pull("org/tiny", {}, {.on_progress = [&](const PullProgress& now) {
             last = now;
           }});
  EXPECT_EQ(requests_for(kWeights).front().range_start(), 123456u);
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
  EXPECT_EQ(last.done, last.total);
  EXPECT_EQ(last.resumed, 123456u);
  EXPECT_FALSE(fs::exists(part(kWeights)));
}

TEST_F(PullTest, FinishesPartThatIsWholeWithoutAsking) {
  serve_repo();
  write_content(part(kWeights), repo_.find(kWeights)->content);
  auto pulled = pull();
  EXPECT_TRUE(requests_for(kWeights).empty());
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
}

TEST_F(PullTest, DamagedPartIsGotAnew) {
  serve_repo();
  write_content(part(kWeights), std::string(1000, 'x'));
  auto pulled = pull();
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
  EXPECT_EQ(requests_for(kWeights).size(), 2u);
}

TEST_F(PullTest, TooLongPartIsGotAnew) {
  serve_repo();
  write_content(part(kWeights), std::string(900000, 'x'));
  auto pulled = pull();
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
}

TEST_F(PullTest, PartThatIsALinkIsNotWrittenThrough) {
  serve_repo();
  fs::path victim = folder_.path() / "victim";
  write_content(victim, "precious");
  fs::create_directories(part(kWeights).parent_path());
  fs::create_symlink(victim, part(kWeights));
  EXPECT_EQ(error_of([&] { pull(); }).kind(), ErrorKind::bad_file);
  EXPECT_EQ(content_of(victim), "precious");
}

TEST_F(PullTest, StartsOverWhereServerKnowsNoRanges) {
  serve([&](const FakeRequest& request) {
    FakeRequest without = request;
    without.headers.erase("range");
    return answer(repo_, without);
  });
  write_content(
      part(kWeights),
      repo_.find(kWeights)->content.substr(0, 100000));
  auto pulled = pull();
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
  EXPECT_EQ(requests_for(kWeights).size(), 1u);
}

TEST_F(PullTest, StartsOverAfter416) {
  int refused = 0;
  serve([&](const FakeRequest& request) {
    if (request.range_start() && refused++ == 0) {
      return FakeResponse{.status = 416};
    }
    return answer(repo_, request);
  });
  write_content(
      part(kWeights),
      repo_.find(kWeights)->content.substr(0, 100000));
  auto pulled = pull();
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
  EXPECT_EQ(refused, 1);
  EXPECT_FALSE(requests_for(kWeights).back().range_start());
}

TEST_F(PullTest, Endless416IsAnError) {
  serve([&](const FakeRequest& request) {
    return request.path.ends_with(kWeights) ? FakeResponse{.status = 416}
                                            : answer(repo_, request);
  });
  Error error = error_of([&] { pull(); });
  EXPECT_NE(std::string(error.what()).find("416"), std::string::npos);
}

TEST_F(PullTest, OtherContentIsRefusedAndRemoved) {
  serve([&](const FakeRequest& request) {
    auto response = answer(repo_, request);
    if (request.path.ends_with(kWeights)) {
      response.body[1000] ^= 1;
    }
    return response;
  });
  Error error = error_of([&] { pull(); });
  EXPECT_EQ(error.kind(), ErrorKind::bad_file);
  EXPECT_NE(
      std::string(error.what()).find(repo_.hash(kWeights)),
      std::string::npos);
  EXPECT_FALSE(fs::exists(blob(kWeights)));
  EXPECT_FALSE(fs::exists(part(kWeights)));
  // Nothing points to a model that is not there.
  EXPECT_FALSE(fs::exists(cache().snapshot(repo_.commit)));
  EXPECT_FALSE(fs::exists(cache().folder() / "refs/main"));
}

TEST_F(PullTest, SmallFilesAreCheckedToo) {
  serve([&](const FakeRequest& request) {
    auto response = answer(repo_, request);
    if (request.path.ends_with("config.json")) {
      response.body[0] = '[';
    }
    return response;
  });
  EXPECT_EQ(error_of([&] { pull(); }).kind(), ErrorKind::bad_file);
}

TEST_F(PullTest, OtherSizeIsRefusedBeforeTheBody) {
  serve([&](const FakeRequest& request) {
    auto response = answer(repo_, request);
    if (request.path.ends_with(kWeights)) {
      response.body = "<!DOCTYPE html><p>Please log in";
      response.headers = {{"Content-Type", "text/html"}};
    }
    return response;
  });
  Error error = error_of([&] { pull(); });
  EXPECT_EQ(error.kind(), ErrorKind::bad_file);
  EXPECT_NE(std::string(error.what()).find("web page"), std::string::npos);
}

TEST_F(PullTest, MoreThanAnnouncedIsRefused) {
  serve([&](const FakeRequest& request) {
    auto response = answer(repo_, request);
    if (request.path.ends_with(kWeights)) {
      response.body += std::string(100000, 'x');
      response.without_length = true;
    }
    return response;
  });
  Error error = error_of([&] { pull(); });
  EXPECT_EQ(error.kind(), ErrorKind::bad_file);
}

TEST_F(PullTest, StalledConnectionIsCutAndResumed) {
  std::atomic<int> attempts = 0;
  serve([&](const FakeRequest& request) {
    auto response = answer(repo_, request);
    if (request.path.ends_with(kWeights) && attempts++ == 0) {
      response.announced = response.body.size();
      response.cut_after = 70000;
      response.stall = true;
    }
    return response;
  });
  settings_.timeouts.stall = std::chrono::seconds(1);
  settings_.max_attempts = 20;
  auto pulled = pull();
  EXPECT_EQ(content_of(pulled.path / kWeights), repo_.find(kWeights)->content);
  EXPECT_GE(requests_for(kWeights).back().range_start(), 70000u);
}

TEST_F(PullTest, BusyServerIsAskedAgain) {
  std::map<std::string, int> seen;
  serve([&](const FakeRequest& request) {
    int attempt = seen[request.path]++;
    if (attempt == 0) {
      return FakeResponse{.status = 503, .body = "<html>busy</html>"};
    }
    if (attempt == 1) {
      return FakeResponse{.status = 429, .headers = {{"Retry-After", "0"}}};
    }
    return answer(repo_, request);
  });
  EXPECT_EQ(pull().revision, repo_.commit);
}

TEST_F(PullTest, RetryAfterIsWaitedFor) {
  int attempts = 0;
  serve([&](const FakeRequest& request) {
    if (attempts++ == 0) {
      return FakeResponse{.status = 429, .headers = {{"Retry-After", "1"}}};
    }
    return answer(repo_, request);
  });
  auto start = std::chrono::steady_clock::now();
  pull();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(PullTest, TooLongRetryAfterIsAnError) {
  serve([&](const FakeRequest&) {
    return FakeResponse{.status = 429, .headers = {{"Retry-After", "3600"}}};
  });
  Error error = error_of([&] { pull(); });
  EXPECT_NE(std::string(error.what()).find("3600 s"), std::string::npos);
  EXPECT_EQ(server_->requests().size(), 1u);
}

TEST_F(PullTest, ServerThatStaysBrokenIsAnError) {
  serve([](const FakeRequest&) { return FakeResponse{.status = 500}; });
  Error error = error_of([&] { pull(); });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_EQ(server_->requests().size(), size_t(settings_.max_attempts));
}

TEST_F(PullTest, NobodyListeningIsAnError) {
  serve_repo();
  server_.reset();
  Error error = error_of([&] { pull(); });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_NE(std::string(error.what()).find("connect"), std::string::npos);
}

TEST_F(PullTest, CancellingKeepsThePart) {
  serve_repo();
  auto cancel = [&](const PullProgress& progress) {
    if (progress.file == kWeights && progress.done > 0) {
      fail(ErrorKind::cancelled, "test", "stop");
    }
  };
  Error error =
      error_of([&] { pull("org/tiny", {}, {.on_progress = cancel}); });
  EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  EXPECT_GT(fs::file_size(part(kWeights)), 0u);
  EXPECT_EQ(content_of(pull().path / kWeights), repo_.find(kWeights)->content);
}

TEST_F(PullTest, TooLittleRoomIsSaidBeforehand) {
  serve([&](const FakeRequest& request) {
    auto response = answer(repo_, request);
    if (request.path.starts_with("/api/")) {
      std::string size = std::to_string(repo_.find(kWeights)->content.size());
      // An exabyte.
      while (true) {
        size_t at = response.body.find("\"size\":" + size);
        if (at == std::string::npos) {
          break;
        }
        response.body.replace(at, 7 + size.size(), "\"size\":1000000000000000");
      }
    }
    return response;
  });
  Error error = error_of([&] { pull(); });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_NE(
      std::string(error.what()).find("too little room"),
      std::string::npos);
  EXPECT_TRUE(requests_for(kWeights).empty());
}

TEST_F(PullTest, OfflineTakesWhatIsThere) {
  serve_repo();
  auto pulled = pull();
  size_t before = server_->requests().size();
  settings_.offline = true;
  EXPECT_EQ(pull().path, pulled.path);
  Error error = error_of([&] { pull("org/other"); });
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  EXPECT_NE(
      std::string(error.what()).find("HF_HUB_OFFLINE"),
      std::string::npos);
  EXPECT_EQ(server_->requests().size(), before);
}

}  // namespace

}  // namespace mlxx::hub
