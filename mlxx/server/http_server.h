#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/server/http_handler.h"
#include "mlxx/server/http_options.h"

namespace mlxx::server {

// Listens, and serves HTTP/1.1 with threads of its own.
class HttpServer {
 public:
  // Connections are served when it returns. invalid_request for an address
  // that is taken or not this machine's, bad_file for TLS files. `handler`
  // outlives the server.
  HttpServer(const HttpOptions& options, HttpHandler& handler);
  // Closes what is open.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;  // 0: no TCP
  // "http://127.0.0.1:8080", "unix:/run/mlxx.sock"
  std::vector<std::string> addresses() const;
  size_t connections() const;

  // No new connections; those that wait for a request are closed, the others
  // when they have answered theirs.
  void stop_accepting();
  // Returns when no connection is left, or, after `patience`, cut off.
  void close(std::chrono::milliseconds patience);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::server
