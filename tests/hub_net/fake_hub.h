#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace mlxx::hub {

// One request as the server read it. Header names in lower case.
struct FakeRequest {
  std::string method;
  std::string path;  // with the query, percent-encoded as it came
  std::map<std::string, std::string> headers;

  std::string header(const std::string& name) const;
  // N of "Range: bytes=N-".
  std::optional<uint64_t> range_start() const;
};

struct FakeResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  // The body's first so many bytes are sent, then the connection is cut.
  std::optional<size_t> cut_after = {};
  // After those bytes nothing more is sent, and the connection stays open until
  // the client goes away.
  bool stall = false;
  // Announced as Content-Length in place of the body's size.
  std::optional<uint64_t> announced = {};
  // No Content-Length: the body ends with the connection.
  bool without_length = false;
  // Pause between blocks of 4 KiB.
  int milliseconds_per_block = 0;
};

// An HTTP/1.1 server on 127.0.0.1 at a port of its own, one thread per
// connection and one request per connection, that answers as the handler says.
class FakeServer {
 public:
  using Handler = std::function<FakeResponse(const FakeRequest&)>;

  explicit FakeServer(Handler handler);
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string url() const;  // http://127.0.0.1:PORT
  std::vector<FakeRequest> requests() const;

 private:
  void accept_connections();
  void serve(int connection);
  void send_response(
      int connection,
      const FakeRequest& request,
      const FakeResponse& response);

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::vector<std::thread> connections_;
  std::thread acceptor_;
};

// A repository on the fake hub.
struct FakeFile {
  std::string name;
  std::string content;
  bool is_lfs = false;
};

struct FakeRepo {
  std::string name = "org/tiny";
  std::string commit = "0123456789abcdef0123456789abcdef01234567";
  std::vector<FakeFile> files = {};

  const FakeFile* find(const std::string& file) const;
  // The name of the blob: sha256, or Git's hash.
  std::string hash(const std::string& file) const;
  // What GET /api/models/... answers.
  std::string listing() const;
  // What GET /api/models/.../tree/... answers, which huggingface_hub asks for.
  std::string tree() const;
};

std::string git_hash(const std::string& content);
std::string sha256_of(const std::string& content);

// Answers as a Hugging Face hub does for one repository: listing, files with
// ranges, 404 for all else.
FakeResponse answer(const FakeRepo& repo, const FakeRequest& request);
// Just a file's content, or the part of it that the request asks for.
FakeResponse answer_content(
    const std::string& content,
    const FakeRequest& request);

// A safetensors repository: a config, a tokenizer, and weights of so many
// bytes.
FakeRepo tiny_repo(size_t weight_bytes = 200000);

}  // namespace mlxx::hub
