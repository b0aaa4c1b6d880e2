#include "mlxx/server/connection.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include "mlxx/server/random_id.h"

namespace mlxx::server {

namespace {

constexpr size_t kReadBytes = 16 << 10;
// Requests that are sent before the last one is answered wait in the socket
// beyond this.
constexpr size_t kMaxPipelined = 64 << 10;
constexpr size_t kWriteBytes = 64 << 10;
constexpr size_t kMaxLingerBytes = 1 << 20;
constexpr auto kForever = Connection::Clock::time_point::max();

// An id that a client chose is kept if it can do no harm in a log.
bool is_good_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
      std::all_of(id.begin(), id.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
            (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
      });
}

double seconds_since(Connection::Clock::time_point start) {
  return std::chrono::duration<double>(Connection::Clock::now() - start)
      .count();
}

}  // namespace

Connection::Connection(
    std::unique_ptr<Transport> transport,
    ConnectionContext& context,
    bool only_status)
    : transport_(std::move(transport)),
      context_(context),
      limits_(*context.limits),
      only_status_(only_status),
      scratch_(kReadBytes) {}

asio::awaitable<void> Connection::run() {
  auto self = shared_from_this();
  clock_ = std::make_shared<ConnectionClock>(
      transport_->executor(),
      [weak = weak_from_this()] {
        if (auto connection = weak.lock()) {
          connection->close_now();
        }
      });
  clock_->set_guard(Clock::now() + limits_.handshake_timeout);
  ErrorCode error = co_await transport_->handshake();
  clock_->lift_guard();
  if (!error) {
    bool stays = true;
    while (stays) {
      stays = co_await serve_one();
      is_first_ = false;
    }
  }
  close_now();
}

void Connection::close_now() {
  is_closed_ = true;
  transport_->close();
  if (clock_) {
    clock_->stop();
    clock_->notify();
  }
}

void Connection::close() {
  asio::post(transport_->executor(), [self = shared_from_this()] {
    self->close_now();
  });
}

void Connection::close_if_idle() {
  asio::post(transport_->executor(), [self = shared_from_this()] {
    if (self->idle_since()) {
      self->close_now();
    }
  });
}

bool Connection::evict() {
  if (idle_since_.exchange(0) == 0) {
    return false;
  }
  close();
  return true;
}

std::optional<Connection::Clock::time_point> Connection::idle_since() const {
  int64_t since = idle_since_;
  if (since == 0) {
    return std::nullopt;
  }
  return Clock::time_point(Clock::duration(since));
}

void Connection::set_idle(bool idle) {
  idle_since_ = idle ? Clock::now().time_since_epoch().count() : 0;
}

void Connection::wake() {
  if (wake_posted_.exchange(true)) {
    return;
  }
  asio::post(transport_->executor(), [self = shared_from_this()] {
    self->wake_posted_ = false;
    if (self->pending_ && self->pending_->is_overfull()) {
      self->close_now();
    }
    self->clock_->notify();
  });
}

// At most one read waits, also while a request is worked on: so the end of the
// connection is seen at once.
void Connection::start_reading() {
  if (reading_ || client_is_gone() || input_.size() >= kMaxPipelined) {
    return;
  }
  reading_ = true;
  asio::co_spawn(transport_->executor(), read_once(), asio::detached);
}

asio::awaitable<void> Connection::read_once() {
  auto self = shared_from_this();
  auto buffer = asio::buffer(scratch_);
  Transport::Count count = co_await transport_->read_some(buffer);
  reading_ = false;
  input_.append(scratch_.data(), count.bytes);
  input_ended_ = input_ended_ || count.error;
  clock_->notify();
}

asio::awaitable<bool> Connection::write(std::string data) {
  for (size_t done = 0; done < data.size();) {
    size_t size = std::min(kWriteBytes, data.size() - done);
    clock_->set_guard(Clock::now() + limits_.write_timeout);
    Transport::Count count =
        co_await transport_->write(asio::buffer(data.data() + done, size));
    clock_->lift_guard();
    served_.bytes_sent += count.bytes;
    if (count.error) {
      close_now();
      co_return false;
    }
    done += size;
  }
  co_return !is_closed_;
}

// An answer is lost if the connection is closed while bytes of the client wait
// unread: the system then resets it.
asio::awaitable<void> Connection::linger() {
  if (is_closed_) {
    co_return;
  }
  transport_->end_writing();
  auto deadline = Clock::now() + limits_.linger_timeout;
  size_t thrown_away = 0;
  while (!client_is_gone() && thrown_away < kMaxLingerBytes) {
    thrown_away += input_.size();
    input_.clear();
    start_reading();
    bool in_time = co_await clock_->wait(deadline);
    if (!in_time) {
      break;
    }
  }
}

bool Connection::may_stay() const {
  return request_.keep_alive && !only_status_ && !context_.is_stopping &&
      !is_closed_;
}

asio::awaitable<bool> Connection::send_whole(
    const HttpResponse& response,
    bool stays) {
  served_.status = response.status;
  std::string data = format_head(
      request_,
      response,
      static_cast<int64_t>(response.body.size()),
      stays);
  if (request_.method != "HEAD" && response.status != 204) {
    data += response.body;
  }
  bool sent = co_await write(std::move(data));
  co_return sent&& stays;
}

asio::awaitable<void> Connection::refuse(HttpResponse response) {
  co_await send_whole(response, false);
  co_await linger();
}

// The head is there: may the body follow? False: it was refused.
asio::awaitable<bool> Connection::accept_head(RequestReader& reader) {
  auto& request = reader.request();
  request.peer = transport_->peer();
  request.is_local = transport_->is_local();
  auto id = request.header("x-request-id");
  request.id = is_good_id(id) ? std::string(id) : random_id("req_");
  auto refusal = context_.handler->refuse(request, only_status_);
  if (refusal) {
    request_ = request;
    // A small body that is there already is not worth a connection.
    bool stays = reader.is_done() && may_stay() && !refusal->closes;
    if (stays) {
      stays = co_await send_whole(*refusal, true);
      served_.client_gone = !stays;
      co_return false;
    }
    request_.keep_alive = false;
    co_await refuse(std::move(*refusal));
    co_return false;
  }
  if (reader.expects_continue()) {
    bool sent = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    co_return sent;
  }
  co_return true;
}

// False: there was none, or it has been answered already; then request_ says
// whether the connection stays.
asio::awaitable<bool> Connection::read_request(RequestReader& reader) {
  auto deadline = Clock::now() +
      (is_first_ ? limits_.header_timeout : limits_.idle_timeout);
  bool begun = false;
  bool head_accepted = false;
  std::optional<HttpError> problem;
  set_idle(true);
  while (!problem) {
    try {
      while (size_t taken = reader.feed(input_)) {
        input_.erase(0, taken);
        if (reader.has_head() && !head_accepted) {
          break;
        }
      }
    } catch (const HttpError& error) {
      problem = error;
      break;
    }
    if (reader.has_begun() && !begun) {
      begun = true;
      set_idle(false);
      deadline = Clock::now() + limits_.header_timeout;
    }
    if (reader.has_head() && !head_accepted) {
      head_accepted = co_await accept_head(reader);
      if (!head_accepted) {
        co_return false;
      }
      deadline = Clock::now() + limits_.body_timeout;
      continue;
    }
    if (reader.is_done()) {
      request_ = std::move(reader.request());
      co_return true;
    }
    if (context_.is_stopping && !begun) {
      request_.keep_alive = false;
      co_return false;
    }
    if (client_is_gone()) {
      if (!begun || is_closed_) {
        request_.keep_alive = false;
        co_return false;
      }
      problem = HttpError(400, "the connection ended inside of the request");
      break;
    }
    start_reading();
    bool in_time = co_await clock_->wait(deadline);
    if (!in_time) {
      if (!begun) {
        request_.keep_alive = false;
        co_return false;
      }
      problem = HttpError(408, "the request did not arrive in time");
    }
  }
  set_idle(false);
  request_ = std::move(reader.request());
  if (request_.id.empty()) {
    request_.id = random_id("req_");
    request_.peer = transport_->peer();
    request_.is_local = transport_->is_local();
  }
  request_.keep_alive = false;
  co_await refuse(context_.handler->error_response(
      request_,
      problem->status(),
      problem->what()));
  co_return false;
}

asio::awaitable<void> Connection::run_handler(std::shared_ptr<Reply> reply) {
  auto call = [this, reply] {
    try {
      *reply = context_.handler->handle(request_);
    } catch (const std::exception&) {
      *reply = context_.handler->error_response(
          request_,
          500,
          "the server failed to handle the request");
    }
  };
  if (context_.handler->is_immediate(request_)) {
    call();
    co_return;
  }
  if (context_.waiting_handlers >= limits_.max_waiting_handlers) {
    *reply = context_.handler->error_response(
        request_,
        503,
        "too many requests are being read");
    co_return;
  }
  ++context_.waiting_handlers;
  auto done = std::make_shared<bool>(false);
  asio::post(*context_.workers, [self = shared_from_this(), call, done] {
    call();
    --self->context_.waiting_handlers;
    asio::post(self->transport_->executor(), [self, done] {
      *done = true;
      self->clock_->notify();
    });
  });
  // A client that leaves is seen, but the thread at work needs the request.
  while (!*done) {
    start_reading();
    co_await clock_->wait(kForever);
  }
}

std::string Connection::stream_chunk(const std::string& data) const {
  if (data.empty() || request_.is_http_1_0) {
    return data;
  }
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

asio::awaitable<bool> Connection::send_pending(PendingReply& reply) {
  bool stays = may_stay();
  bool head_sent = false;
  auto last_sent = Clock::now();
  for (;;) {
    start_reading();
    if (client_is_gone()) {
      served_.client_gone = true;
      co_return false;
    }
    ReplyPiece piece = reply.pull();
    std::string out;
    if (piece.head && piece.done && piece.data.empty()) {
      co_return co_await send_whole(*piece.head, stays && !piece.failed);
    }
    if (piece.head) {
      // HTTP/1.0 knows the end of a stream by the end of the connection.
      stays = stays && !request_.is_http_1_0;
      served_.status = piece.head->status;
      out = format_head(request_, *piece.head, -1, stays);
      head_sent = true;
    }
    out += stream_chunk(piece.data);
    if (piece.done && !piece.failed && !request_.is_http_1_0) {
      out += "0\r\n\r\n";
    }
    if (!out.empty()) {
      last_sent = Clock::now();
      bool sent = co_await write(std::move(out));
      if (!sent) {
        served_.client_gone = true;
        co_return false;
      }
    }
    if (piece.done) {
      co_return stays && !piece.failed;
    }
    bool woken = co_await clock_->wait(last_sent + limits_.stream_silence);
    if (woken) {
      continue;
    }
    last_sent = Clock::now();
    if (!head_sent) {
      auto head = reply.head_so_far();
      if (head) {
        stays = stays && !request_.is_http_1_0;
        head_sent = true;
        served_.status = head->status;
        out = format_head(request_, *head, -1, stays);
      }
    } else {
      out = stream_chunk(reply.keep_alive_data());
    }
    bool sent = co_await write(std::move(out));
    if (!sent) {
      served_.client_gone = true;
      co_return false;
    }
  }
}

asio::awaitable<bool> Connection::serve_one() {
  request_ = HttpRequest();
  served_ = Served();
  auto start = Clock::now();
  bool stays = false;
  {
    RequestReader reader(limits_);
    bool has_request = co_await read_request(reader);
    if (!has_request) {
      if (served_.status != 0) {
        served_.seconds = seconds_since(start);
        context_.handler->served(request_, served_);
      }
      co_return served_.status != 0 && may_stay();
    }
  }
  start = Clock::now();
  auto reply = std::make_shared<Reply>();
  co_await run_handler(reply);
  // It may be large, and a stream may last.
  request_.body = std::string();
  if (auto* response = std::get_if<HttpResponse>(reply.get())) {
    stays = co_await send_whole(*response, may_stay() && !response->closes);
  } else {
    auto pending = std::move(std::get<std::unique_ptr<PendingReply>>(*reply));
    pending->set_wake([weak = weak_from_this()] {
      if (auto self = weak.lock()) {
        self->wake();
      }
    });
    pending_ = pending.get();
    stays = co_await send_pending(*pending);
    pending_ = nullptr;
    if (served_.client_gone) {
      pending->cancel();
    }
  }
  served_.seconds = seconds_since(start);
  context_.handler->served(request_, served_);
  if (!stays) {
    co_await linger();
  }
  co_return stays;
}

}  // namespace mlxx::server
