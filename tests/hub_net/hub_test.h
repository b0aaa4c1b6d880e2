#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "mlxx/base/error.h"
#include "mlxx/hub/hf_cache.h"
#include "mlxx/hub/pull.h"
#include "tests/hub_net/fake_hub.h"

namespace mlxx::hub {

// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "mlxx-hub-XXXXXX").string();
    if (!mkdtemp(name.data())) {
      throw std::runtime_error("no temporary folder can be made");
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const {
    return path_;
  }

 private:
  std::filesystem::path path_;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_content(
    const std::filesystem::path& path,
    const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// The error that `action` ends with; the test fails if there is none.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorKind::internal, "no error"};
}

// A client of a fake hub, with a cache of its own. Pauses between attempts are
// short.
class HubTest : public testing::Test {
 protected:
  void serve(FakeServer::Handler handler) {
    server_ = std::make_unique<FakeServer>(std::move(handler));
    settings_.endpoint = server_->url();
    settings_.cache = folder_.path() / "hub";
    settings_.first_wait = std::chrono::milliseconds(1);
    settings_.max_attempts = 4;
    // A busy machine may take its time.
    settings_.timeouts.stall = std::chrono::seconds(60);
  }

  void serve_repo() {
    serve(
        [this](const FakeRequest& request) { return answer(repo_, request); });
  }

  PulledModel pull(
      const std::string& model = "org/tiny",
      const RepoPull& options = {},
      const PullEvents& events = {}) {
    return pull_from_hub(*parse_repo_name(model), options, settings_, events);
  }

  RepoCache cache() const {
    return {settings_.cache, repo_.name};
  }
  std::filesystem::path blob(const std::string& file) const {
    return cache().blob(repo_.hash(file));
  }
  std::filesystem::path part(const std::string& file) const {
    return blob(file).string() + ".part";
  }
  // Requests for that file's content.
  std::vector<FakeRequest> requests_for(const std::string& file) const {
    std::vector<FakeRequest> found;
    for (const FakeRequest& request : server_->requests()) {
      if (request.path.ends_with("/" + file)) {
        found.push_back(request);
      }
    }
    return found;
  }

  static constexpr const char* kWeights = "model.safetensors";

  TemporaryFolder folder_;
  FakeRepo repo_ = tiny_repo();
  std::unique_ptr<FakeServer> server_;
  HubSettings settings_;
};

}  // namespace mlxx::hub
