#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/thread_pool.hpp>

#include "mlxx/server/connection_clock.h"
#include "mlxx/server/http_handler.h"
#include "mlxx/server/http_options.h"
#include "mlxx/server/request_reader.h"
#include "mlxx/server/transport.h"

namespace mlxx::server {

// What the connections of one server share.
struct ConnectionContext {
  const HttpLimits* limits = nullptr;
  HttpHandler* handler = nullptr;
  asio::thread_pool* workers = nullptr;
  std::atomic<size_t> waiting_handlers{0};
  std::atomic<bool> is_stopping{false};
};

// Serves the requests of one client, one after the other. Everything but the
// constructor and what is marked runs on the connection's strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  // `only_status`: one of the reserved ones; serves one request.
  Connection(
      std::unique_ptr<Transport> transport,
      ConnectionContext& context,
      bool only_status);

  // Ends when the connection does; does not throw.
  asio::awaitable<void> run();

  // Any thread: closes it if it waits for a request.
  void close_if_idle();
  // Any thread: closes it if it waits for a request; false if it does not, or
  // has been closed so already.
  bool evict();
  // Any thread: at once, whatever it does.
  void close();
  // Any thread: since when it has been waiting for a request, or nothing.
  std::optional<Clock::time_point> idle_since() const;

 private:
  asio::awaitable<bool> serve_one();
  asio::awaitable<bool> read_request(RequestReader& reader);
  asio::awaitable<bool> accept_head(RequestReader& reader);
  asio::awaitable<void> run_handler(std::shared_ptr<Reply> reply);
  asio::awaitable<bool> send_pending(PendingReply& reply);
  asio::awaitable<bool> send_whole(const HttpResponse& response, bool stays);
  asio::awaitable<void> refuse(HttpResponse response);
  asio::awaitable<bool> write(std::string data);
  asio::awaitable<void> read_once();
  asio::awaitable<void> linger();
  void wake();  // any thread
  void start_reading();
  bool client_is_gone() const {
    return input_ended_ || is_closed_;
  }
  bool may_stay() const;
  void close_now();
  void set_idle(bool idle);
  std::string stream_chunk(const std::string& data) const;

  std::unique_ptr<Transport> transport_;
  ConnectionContext& context_;
  const HttpLimits& limits_;
  bool only_status_;
  std::shared_ptr<ConnectionClock> clock_;
  std::atomic<bool> wake_posted_{false};
  std::string input_;  // read and not yet taken
  std::vector<char> scratch_;
  bool reading_ = false;
  bool input_ended_ = false;
  bool is_closed_ = false;
  bool is_first_ = true;
  HttpRequest request_;
  PendingReply* pending_ = nullptr;
  Served served_;
  std::atomic<int64_t> idle_since_{0};
};

}  // namespace mlxx::server
