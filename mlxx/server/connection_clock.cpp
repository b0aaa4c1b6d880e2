#include "mlxx/server/connection_clock.h"

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace mlxx::server {

namespace asio = boost::asio;

ConnectionClock::ConnectionClock(
    asio::any_io_executor executor,
    std::function<void()> late)
    : signal_(executor, TimePoint::max()),
      timer_(executor),
      late_(std::move(late)) {}

asio::awaitable<bool> ConnectionClock::wait(TimePoint deadline) {
  auto self = shared_from_this();
  timed_out_ = false;
  if (!signalled_) {
    wait_deadline_ = deadline;
    arm(deadline);
  }
  while (!signalled_ && !timed_out_) {
    co_await signal_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  wait_deadline_ = TimePoint::max();
  co_return std::exchange(signalled_, false);
}

void ConnectionClock::notify() {
  signalled_ = true;
  signal_.cancel();
}

void ConnectionClock::set_guard(TimePoint deadline) {
  guard_deadline_ = deadline;
  arm(deadline);
}

void ConnectionClock::lift_guard() {
  guard_deadline_ = TimePoint::max();
}

void ConnectionClock::stop() {
  lift_guard();
  timer_.cancel();
  // Later waits are short: nothing comes any more.
  armed_ = TimePoint::max();
}

void ConnectionClock::arm(TimePoint when) {
  if (when >= armed_) {
    return;
  }
  armed_ = when;
  timer_.expires_at(when);
  timer_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
    auto self = weak.lock();
    if (self && !error) {
      self->go_off();
    }
  });
}

void ConnectionClock::go_off() {
  // One that was set anew after this one had gone off.
  if (Clock::now() < armed_) {
    return;
  }
  armed_ = TimePoint::max();
  auto now = Clock::now();
  if (now >= wait_deadline_) {
    wait_deadline_ = TimePoint::max();
    timed_out_ = true;
    signal_.cancel();
  }
  if (now >= guard_deadline_) {
    guard_deadline_ = TimePoint::max();
    late_();
  }
  auto next = std::min(wait_deadline_, guard_deadline_);
  if (next != TimePoint::max()) {
    arm(next);
  }
}

}  // namespace mlxx::server
