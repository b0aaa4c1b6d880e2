#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "mlxx/server/http_message.h"

namespace mlxx::server {

// What has become of a reply that takes its time.
struct ReplyPiece {
  // Comes once, before any data. With `done` and no data: the whole answer,
  // body included.
  std::optional<HttpResponse> head;
  std::string data;     // of the body of a stream
  bool done = false;    // nothing follows
  bool failed = false;  // with done: the stream must not look complete
};

// A reply whose parts come from other threads. Destroyed once the client has
// all of it or is gone.
class PendingReply {
 public:
  virtual ~PendingReply() = default;
  // `wake` may be called from any thread, also at once, whenever pull() may
  // have something. Called once.
  virtual void set_wake(std::function<void()> wake) = 0;
  // What there is by now, possibly nothing. Never blocks.
  virtual ReplyPiece pull() = 0;
  // Head of a stream that nothing has been heard of yet, if it is time to send
  // one; afterwards pull() gives no head. Nothing for replies that don't
  // stream.
  virtual std::optional<HttpResponse> head_so_far() = 0;
  // What keeps a silent stream open.
  virtual std::string keep_alive_data() = 0;
  // More waits for a slow reader than may: the connection is cut off.
  virtual bool is_overfull() const = 0;
  // The client is gone, or too slow. pull() is not called any more.
  virtual void cancel() = 0;
};

using Reply = std::variant<HttpResponse, std::unique_ptr<PendingReply>>;

// What a connection did with one request, for logs and metrics.
struct Served {
  int status = 0;
  uint64_t bytes_sent = 0;
  double seconds = 0;
  bool client_gone = false;
};

// All methods from any thread.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Only the head of the request is there. A response refuses it before its
  // body is read. `only_status`: the connection is one of the reserved ones.
  virtual std::optional<HttpResponse> refuse(
      HttpRequest& request,
      bool only_status) = 0;
  // Answered without a worker thread: quick, and answers when all are busy.
  virtual bool is_immediate(const HttpRequest& request) = 0;
  // The request lives as long as the call.
  virtual Reply handle(const HttpRequest& request) = 0;
  // For failures that only the connection sees: bad framing, time-outs.
  virtual HttpResponse error_response(
      const HttpRequest& request,
      int status,
      const std::string& message) = 0;
  virtual void served(const HttpRequest& request, const Served& how) = 0;
};

}  // namespace mlxx::server
