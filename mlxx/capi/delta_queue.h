#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

namespace mlxx::capi {

// Hands an answer's text from the thread that computes it to the one that
// asked, so that callbacks run where the caller expects them.
class DeltaQueue {
 public:
  // From the computing thread. False: the caller wants no more.
  bool push(std::string text);
  // The last call of the computing thread, with what went wrong if anything.
  void finish(std::exception_ptr error);

  // From the asking thread: waits for the next piece; nothing at the end.
  std::optional<std::string> pop();
  void cancel();
  bool is_cancelled();
  // Waits for finish(); rethrows its error.
  void join();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> pieces_;
  bool is_cancelled_ = false;
  bool is_finished_ = false;
  std::exception_ptr error_;
};

}  // namespace mlxx::capi
