#include "tests/server/raw_client.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace mlxx::server {

namespace {

using Clock = std::chrono::steady_clock;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return result;
}

}  // namespace

RawClient::RawClient(int port) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(
          socket_,
          reinterpret_cast<sockaddr*>(&address),
          sizeof(address)) != 0) {
    ::close(socket_);
    throw std::runtime_error("cannot connect");
  }
}

RawClient::RawClient(const std::string& unix_socket) {
  socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(
      address.sun_path,
      unix_socket.c_str(),
      sizeof(address.sun_path) - 1);
  if (connect(
          socket_,
          reinterpret_cast<sockaddr*>(&address),
          sizeof(address)) != 0) {
    ::close(socket_);
    throw std::runtime_error("cannot connect");
  }
}

RawClient::~RawClient() {
  close();
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawClient::half_close() {
  shutdown(socket_, SHUT_WR);
}

void RawClient::close() {
  if (socket_ >= 0) {
    ::close(socket_);
    socket_ = -1;
  }
}

void RawClient::reset() {
  linger now{1, 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close();
}

void RawClient::shrink_receive_buffer() {
  int size = 1024;
  setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

bool RawClient::receive(Clock::time_point deadline) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - Clock::now());
  pollfd wanted{socket_, POLLIN, 0};
  int timeout = static_cast<int>(std::max<int64_t>(0, left.count()));
  if (ended_ || poll(&wanted, 1, timeout) <= 0) {
    return false;
  }
  std::array<char, 16384> buffer{};
  ssize_t count = recv(socket_, buffer.data(), buffer.size(), 0);
  if (count <= 0) {
    ended_ = true;
    return false;
  }
  input_.append(buffer.data(), static_cast<size_t>(count));
  return true;
}

std::string RawClient::read_all(std::chrono::milliseconds patience) {
  auto deadline = Clock::now() + patience;
  while (receive(deadline)) {
  }
  return std::exchange(input_, {});
}

std::string RawClient::read_until(
    std::string_view end,
    std::chrono::milliseconds patience) {
  auto deadline = Clock::now() + patience;
  while (input_.find(end) == std::string::npos && receive(deadline)) {
  }
  auto found = input_.find(end);
  size_t size = found == std::string::npos ? input_.size() : found + end.size();
  std::string result = input_.substr(0, size);
  input_.erase(0, size);
  return result;
}

std::string RawClient::Response::header(std::string_view name) const {
  std::string wanted = "\r\n" + lower(name) + ": ";
  auto at = lower(head).find(wanted);
  if (at == std::string::npos) {
    return "";
  }
  at += wanted.size();
  return head.substr(at, head.find("\r\n", at) - at);
}

RawClient::Response RawClient::read_response(bool head_only) {
  Response response;
  auto deadline = Clock::now() + std::chrono::seconds(10);
  response.head = read_until("\r\n\r\n", std::chrono::seconds(10));
  if (response.head.size() < 13) {
    return response;
  }
  response.status = std::atoi(response.head.c_str() + 9);
  if (head_only) {
    response.complete = true;
    return response;
  }
  auto length = response.header("content-length");
  if (!length.empty()) {
    size_t size = std::stoul(length);
    while (input_.size() < size && receive(deadline)) {
    }
    response.complete = input_.size() >= size;
    response.body = input_.substr(0, size);
    input_.erase(0, response.body.size());
    return response;
  }
  if (response.header("transfer-encoding") != "chunked") {
    response.complete = response.status == 204;
    return response;
  }
  for (;;) {
    std::string line = read_until("\r\n");
    size_t size = std::strtoul(line.c_str(), nullptr, 16);
    if (!line.ends_with("\r\n")) {
      return response;
    }
    while (input_.size() < size + 2 && receive(deadline)) {
    }
    if (input_.size() < size + 2) {
      return response;
    }
    response.body += input_.substr(0, size);
    input_.erase(0, size + 2);
    if (size == 0) {
      response.complete = true;
      return response;
    }
  }
}

bool RawClient::is_closed(std::chrono::milliseconds patience) {
  auto deadline = Clock::now() + patience;
  while (receive(deadline)) {
  }
  return ended_;
}

}  // namespace mlxx::server
