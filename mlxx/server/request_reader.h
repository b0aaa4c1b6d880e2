#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "mlxx/server/http_message.h"
#include "mlxx/server/http_options.h"

namespace mlxx::server {

// A request that can't be read. The connection has lost its place in the
// stream and closes after the answer.
class HttpError : public std::exception {
 public:
  HttpError(int status, std::string message)
      : status_(status), message_(std::move(message)) {}
  int status() const {
    return status_;
  }
  const char* what() const noexcept override {
    return message_.c_str();
  }

 private:
  int status_;
  std::string message_;
};

// Takes one request out of the bytes of a connection, by the rules of RFC 9112
// read strictly: whatever two programs might understand differently is refused.
class RequestReader {
 public:
  explicit RequestReader(const HttpLimits& limits);
  ~RequestReader();

  // Takes what it can of `bytes`, which begin where the last call ended;
  // returns how many. 0: more are needed. Throws HttpError.
  size_t feed(std::string_view bytes);

  bool has_begun() const;  // there was a byte
  bool has_head() const;   // everything but the body is there
  bool is_done() const;
  // Waits for "100 Continue" before it sends the body.
  bool expects_continue() const;

  // Valid from has_head() on; the body from is_done() on. In an error, what is
  // known by then.
  HttpRequest& request();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::server
