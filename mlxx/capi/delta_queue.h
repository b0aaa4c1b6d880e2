#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

namespace mlxx::capi {

// Hands an answer's text from the thread that computes it to the one that
// asked, so that callbacks run where the caller expects them. Unbounded: the
// computing thread never waits for a callback.
class DeltaQueue {
 public:
  // From the computing thread, first. False: the caller has gone away, nothing
  // of the call may be touched.
  bool begin();
  // False: the caller wants no more.
  bool push(std::string text);
  // The last call of the computing thread, with what went wrong if anything.
  void finish(std::exception_ptr error);

  // From the asking thread: waits for the next piece; nothing at the end, or
  // where it was cancelled before begin().
  std::optional<std::string> pop();
  // Waits for finish() as pop() does; rethrows its error.
  void join();

  // From any thread.
  void cancel();
  bool is_cancelled();

 private:
  bool will_end() const {
    return is_finished_ || (is_cancelled_ && !is_begun_);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> pieces_;
  bool is_begun_ = false;
  bool is_cancelled_ = false;
  bool is_finished_ = false;
  std::exception_ptr error_;
};

}  // namespace mlxx::capi
