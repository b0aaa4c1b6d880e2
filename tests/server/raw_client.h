#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace mlxx::server {

// One socket, written and read as bytes: what a test sends is what arrives.
class RawClient {
 public:
  explicit RawClient(int port);
  explicit RawClient(const std::string& unix_socket);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False if the other side has gone.
  bool send(std::string_view bytes);
  // No more will be sent.
  void half_close();
  void close();
  // Closes with a reset instead of an orderly end.
  void reset();
  // Receives into few bytes, so that the sender soon has to wait.
  void shrink_receive_buffer();

  // What comes until the other side closes or the time is over.
  std::string read_all(
      std::chrono::milliseconds patience = std::chrono::seconds(5));
  // Up to and with `end`; shorter if the connection or the time ended.
  std::string read_until(
      std::string_view end,
      std::chrono::milliseconds patience = std::chrono::seconds(5));
  // One response with a Content-Length or in chunks: head and decoded body.
  struct Response {
    int status = 0;
    std::string head;
    std::string body;
    bool complete = false;
    std::string header(std::string_view name) const;
  };
  Response read_response(bool head_only = false);
  // True once the other side has closed.
  bool is_closed(std::chrono::milliseconds patience);

 private:
  // False at the end or when the time is over.
  bool receive(std::chrono::steady_clock::time_point deadline);

  int socket_ = -1;
  std::string input_;
  bool ended_ = false;
};

}  // namespace mlxx::server
