#pragma once

#include <chrono>
#include <csignal>

namespace mlxx::apps {

// While it lives, the first SIGTERM or SIGINT is something to wait for and the
// second ends the process at once. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // True if one came, within that time or before.
  bool wait(std::chrono::milliseconds patience);

 private:
  struct sigaction previous_term_{};
  struct sigaction previous_int_{};
};

}  // namespace mlxx::apps
