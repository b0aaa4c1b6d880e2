#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace mlxx::server {

// What one connection may cost before anybody knows who it is.
struct HttpLimits {
  size_t max_header_bytes = 32 << 10;
  size_t max_headers = 100;
  size_t max_target_bytes = 8 << 10;
  size_t max_body_bytes = size_t{16} << 20;
  size_t max_connections = 1024;
  // Beyond those: connections on which only the status of the server is told.
  size_t reserved_connections = 32;
  size_t max_connections_per_address = 512;
  // Bytes of a stream that wait for a slow reader.
  size_t max_unsent_bytes = size_t{8} << 20;
  // Handlers that wait for a worker thread.
  size_t max_waiting_handlers = 1024;
  std::chrono::milliseconds handshake_timeout{10'000};
  std::chrono::milliseconds header_timeout{10'000};  // first to last byte
  std::chrono::milliseconds body_timeout{60'000};    // the whole of it
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests
  std::chrono::milliseconds write_timeout{30'000};   // of 64 KiB
  std::chrono::milliseconds linger_timeout{2'000};   // for the other's end
  // A stream that is silent so long gets its headers, then comments.
  std::chrono::milliseconds stream_silence{15'000};
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;          // 0: any free one; negative: no TCP
  std::string unix_socket;  // "" for none
  std::string tls_certificate_file;
  std::string tls_key_file;
  // One writes tens of thousands of tokens a second.
  int io_threads = 1;
  int worker_threads = 4;
  HttpLimits limits;
};

}  // namespace mlxx::server
