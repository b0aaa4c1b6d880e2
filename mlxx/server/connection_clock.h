#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

namespace mlxx::server {

// What a connection waits with, on its strand. There are two deadlines for each
// token of a stream and hardly ever one that is met, so the timer is only set
// when a deadline comes earlier than all before it, and looks at what counts
// when it goes off.
class ConnectionClock : public std::enable_shared_from_this<ConnectionClock> {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  // `late` is called when the guard's deadline has passed.
  ConnectionClock(
      boost::asio::any_io_executor executor,
      std::function<void()> late);

  // Until notify() or that time; false: it was the time. One waiter.
  boost::asio::awaitable<bool> wait(TimePoint deadline);
  void notify();

  void set_guard(TimePoint deadline);
  void lift_guard();
  // Nothing goes off any more.
  void stop();

 private:
  void arm(TimePoint when);
  void go_off();

  boost::asio::steady_timer signal_;
  boost::asio::steady_timer timer_;
  std::function<void()> late_;
  bool signalled_ = false;
  bool timed_out_ = false;
  TimePoint armed_ = TimePoint::max();
  TimePoint wait_deadline_ = TimePoint::max();  // max: nobody waits
  TimePoint guard_deadline_ = TimePoint::max();
};

}  // namespace mlxx::server
