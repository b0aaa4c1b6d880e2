#pragma once

#include <csignal>

namespace mlxx::apps {

// While it lives, Ctrl-C sets a flag instead of ending the process, so that a
// verb can stop cleanly. A second Ctrl-C before the flag is cleared ends the
// process at once. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool is_interrupted() const;
  void clear();

 private:
  struct sigaction previous_{};
};

// Waits until `descriptor` can be read, its end included. False if Ctrl-C came
// to the living scope, be it before the wait or on another thread: a plain
// read would miss both.
bool wait_for_input(int descriptor);

}  // namespace mlxx::apps
