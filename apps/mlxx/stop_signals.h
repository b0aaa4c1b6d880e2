#pragma once

#include <chrono>
#include <csignal>

namespace mlxx::apps {

// SIGTERM and SIGINT as something to wait for. Made before any other thread,
// so that all of them leave the signals to whoever waits here.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // True if one came, within that time or before.
  bool wait(std::chrono::milliseconds patience);
  // From now on the next one ends the process at once.
  void let_the_next_one_kill();

 private:
  sigset_t signals_{};
  sigset_t previous_{};
};

}  // namespace mlxx::apps
