#include "tests/hub_net/fake_hub.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <stdexcept>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/json.h"
#include "mlxx/base/sha256.h"
#include "mlxx/hub/content_hash.h"

namespace mlxx::hub {

namespace {

constexpr size_t kBlock = 4096;
constexpr int kPollMilliseconds = 20;

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), ::tolower);
  return text;
}

FakeRequest parse_request(const std::string& head) {
  FakeRequest request;
  size_t line_end = head.find("\r\n");
  std::string line = head.substr(0, line_end);
  size_t first = line.find(' ');
  size_t second = line.find(' ', first + 1);
  request.method = line.substr(0, first);
  request.path = line.substr(first + 1, second - first - 1);
  size_t at = line_end + 2;
  while (at < head.size()) {
    size_t end = head.find("\r\n", at);
    if (end == std::string::npos || end == at) {
      break;
    }
    std::string header = head.substr(at, end - at);
    size_t colon = header.find(": ");
    if (colon != std::string::npos) {
      request.headers[lower_case(header.substr(0, colon))] =
          header.substr(colon + 2);
    }
    at = end + 2;
  }
  return request;
}

// False once the client is gone.
bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t sent = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

std::string FakeRequest::header(const std::string& name) const {
  auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

std::optional<uint64_t> FakeRequest::range_start() const {
  std::string range = header("range");
  if (!range.starts_with("bytes=")) {
    return std::nullopt;
  }
  return std::stoull(range.substr(6));
}

FakeServer::FakeServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || bind(listener_, generic, size) != 0 ||
      listen(listener_, 64) != 0 ||
      getsockname(listener_, generic, &size) != 0) {
    throw std::runtime_error("no local server can be started");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_connections(); });
}

FakeServer::~FakeServer() {
  stopping_ = true;
  acceptor_.join();
  for (std::thread& connection : connections_) {
    connection.join();
  }
  close(listener_);
}

std::string FakeServer::url() const {
  return "http://127.0.0.1:" + std::to_string(port_);
}

std::vector<FakeRequest> FakeServer::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

void FakeServer::accept_connections() {
  while (!stopping_) {
    pollfd ready{listener_, POLLIN, 0};
    if (poll(&ready, 1, kPollMilliseconds) <= 0) {
      continue;
    }
    int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) {
      connections_.emplace_back([this, connection] { serve(connection); });
    }
  }
}

void FakeServer::serve(int connection) {
  std::string head;
  std::array<char, 4096> block{};
  while (!stopping_ && head.find("\r\n\r\n") == std::string::npos) {
    pollfd ready{connection, POLLIN, 0};
    if (poll(&ready, 1, kPollMilliseconds) <= 0) {
      continue;
    }
    ssize_t count = recv(connection, block.data(), block.size(), 0);
    if (count <= 0) {
      break;
    }
    head.append(block.data(), static_cast<size_t>(count));
  }
  if (head.find("\r\n\r\n") != std::string::npos) {
    FakeRequest request = parse_request(head);
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    send_response(connection, request, handler_(request));
  }
  close(connection);
}

void FakeServer::send_response(
    int connection,
    const FakeRequest& request,
    const FakeResponse& response) {
  std::string head =
      "HTTP/1.1 " + std::to_string(response.status) + " Fake\r\n";
  for (const auto& [name, value] : response.headers) {
    head += name + ": " + value + "\r\n";
  }
  if (!response.without_length) {
    head += "Content-Length: " +
        std::to_string(response.announced.value_or(response.body.size())) +
        "\r\n";
  }
  head += "Connection: close\r\n\r\n";
  if (!send_all(connection, head) || request.method == "HEAD") {
    return;
  }
  std::string_view body = response.body;
  if (response.cut_after) {
    body = body.substr(0, *response.cut_after);
  }
  while (!body.empty() && !stopping_) {
    size_t count = response.milliseconds_per_block > 0
        ? std::min(body.size(), kBlock)
        : body.size();
    if (!send_all(connection, body.substr(0, count))) {
      return;
    }
    body.remove_prefix(count);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(response.milliseconds_per_block));
  }
  // Until the client goes away.
  while (response.stall && !stopping_) {
    pollfd gone{connection, POLLIN, 0};
    char byte = 0;
    if (poll(&gone, 1, kPollMilliseconds) > 0 &&
        recv(connection, &byte, 1, 0) <= 0) {
      return;
    }
  }
}

std::string sha256_of(const std::string& content) {
  return sha256_hex(std::as_bytes(std::span(content)));
}

std::string git_hash(const std::string& content) {
  ContentHasher hasher(ContentHash::Kind::git_blob, content.size());
  hasher.update(std::as_bytes(std::span(content)));
  return hasher.hex();
}

const FakeFile* FakeRepo::find(const std::string& file) const {
  for (const FakeFile& candidate : files) {
    if (candidate.name == file) {
      return &candidate;
    }
  }
  return nullptr;
}

std::string FakeRepo::hash(const std::string& file) const {
  const FakeFile* found = find(file);
  return found->is_lfs ? sha256_of(found->content) : git_hash(found->content);
}

std::string FakeRepo::listing() const {
  Json siblings = Json::array();
  for (const FakeFile& file : files) {
    Json entry = {
        {"rfilename", file.name},
        {"size", file.content.size()},
        {"blobId", git_hash(file.is_lfs ? "pointer" : file.content)}};
    if (file.is_lfs) {
      entry["lfs"] = {
          {"sha256", sha256_of(file.content)},
          {"size", file.content.size()},
          {"pointerSize", 134}};
    }
    siblings.push_back(entry);
  }
  Json json = {
      {"id", name},
      {"modelId", name},
      {"sha", commit},
      {"private", false},
      {"siblings", siblings}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string FakeRepo::tree() const {
  Json entries = Json::array();
  for (const FakeFile& file : files) {
    Json entry = {
        {"type", "file"},
        {"path", file.name},
        {"size", file.content.size()},
        {"oid", git_hash(file.is_lfs ? "pointer" : file.content)}};
    if (file.is_lfs) {
      entry["lfs"] = {
          {"oid", sha256_of(file.content)},
          {"size", file.content.size()},
          {"pointerSize", 134}};
    }
    entries.push_back(entry);
  }
  return entries.dump();
}

FakeResponse answer_content(
    const std::string& content,
    const FakeRequest& request) {
  FakeResponse response;
  auto start = request.range_start();
  if (!start) {
    response.body = content;
    return response;
  }
  if (*start >= content.size()) {
    response.status = 416;
    response.headers = {
        {"Content-Range", "bytes */" + std::to_string(content.size())}};
    return response;
  }
  response.status = 206;
  response.body = content.substr(*start);
  response.headers = {
      {"Content-Range",
       "bytes " + std::to_string(*start) + "-" +
           std::to_string(content.size() - 1) + "/" +
           std::to_string(content.size())}};
  return response;
}

FakeResponse answer(const FakeRepo& repo, const FakeRequest& request) {
  if (request.path.starts_with("/api/models/" + repo.name + "/revision/")) {
    return {
        .headers = {{"Content-Type", "application/json"}},
        .body = repo.listing()};
  }
  if (request.path.starts_with("/api/models/" + repo.name + "/tree/")) {
    return {
        .headers = {{"Content-Type", "application/json"}},
        .body = repo.tree()};
  }
  std::string prefix = "/" + repo.name + "/resolve/" + repo.commit + "/";
  if (request.path.starts_with(prefix)) {
    if (const FakeFile* file = repo.find(request.path.substr(prefix.size()))) {
      auto response = answer_content(file->content, request);
      response.headers.emplace_back(
          "ETag",
          "\"" + repo.hash(file->name) + "\"");
      response.headers.emplace_back("X-Repo-Commit", repo.commit);
      return response;
    }
    return {
        .status = 404,
        .headers = {{"X-Error-Code", "EntryNotFound"}},
        .body = {}};
  }
  return {
      .status = 404,
      .headers =
          {{"X-Error-Code", "RepoNotFound"},
           {"X-Error-Message", "Repository not found"}},
      .body = {}};
}

FakeRepo tiny_repo(size_t weight_bytes) {
  FakeRepo repo;
  std::string weights;
  weights.reserve(weight_bytes);
  uint32_t state = 1;
  for (size_t i = 0; i < weight_bytes; ++i) {
    state = state * 1664525u + 1013904223u;
    weights += static_cast<char>(state >> 24);
  }
  repo.files = {
      {.name = ".gitattributes", .content = "*.safetensors filter=lfs\n"},
      {.name = "README.md", .content = "# Tiny\n"},
      {.name = "config.json", .content = R"({"model_type": "llama"})"},
      {.name = "model.safetensors", .content = weights, .is_lfs = true},
      {.name = "modeling_tiny.py", .content = "import os\n"},
      {.name = "pytorch_model.bin", .content = "pickle", .is_lfs = true},
      {.name = "tokenizer.json", .content = R"({"version": "1.0"})"},
  };
  return repo;
}

}  // namespace mlxx::hub
